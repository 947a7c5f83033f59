//! The fields that hold an answer to a form: `response_format`, `structured_outputs`, the `guided_` fields
//! of older clients, and what other servers call the same. Each is read, or refused by name; two at once
//! are refused by both names.

use crate::constraint::AskedAnswer;
use crate::http::error::ApiError;
use crate::http::fields::Fields;
use lockstep_grammar::Answer;
use serde_json::{Value, json};

/// Known elsewhere, and refused here.
const REFUSED: &[(&str, &str)] = &[
    (
        "grammar",
        "servers disagree about its syntax; send a Lark grammar as structured_outputs.grammar",
    ),
    ("ebnf", "send a Lark grammar as structured_outputs.grammar"),
    ("json_schema", "send response_format of type json_schema"),
    (
        "structural_tag",
        "send tools, or a Lark grammar as structured_outputs.grammar",
    ),
    (
        "guided_whitespace_pattern",
        "blanks of JSON can't be chosen",
    ),
];

/// Reads all fields that say what the answer may be.
///
/// # Errors
/// If one is not understood, or two of them ask for something.
pub(crate) fn answer(fields: &mut Fields<'_>) -> Result<Option<AskedAnswer>, ApiError> {
    for (name, why) in REFUSED {
        fields.refuse(name, |_| false, why)?;
    }
    let asked = [
        response_format(fields)?,
        structured_outputs(fields)?,
        fields
            .get("guided_json")
            .map(|value| json_schema(value, "guided_json"))
            .transpose()?,
        regex(fields, "guided_regex")?,
        choice(fields, "guided_choice")?,
        lark(fields, "guided_grammar")?,
        regex(fields, "regex")?,
    ];
    only_one(asked.into_iter().flatten())
}

fn only_one(asked: impl Iterator<Item = AskedAnswer>) -> Result<Option<AskedAnswer>, ApiError> {
    let mut found: Option<AskedAnswer> = None;
    for asked in asked {
        if let Some(first) = &found {
            return Err(conflict(&first.field, &asked.field));
        }
        found = Some(asked);
    }
    Ok(found)
}

/// The error that two fields hold the same answer.
pub(crate) fn conflict(first: &str, second: &str) -> ApiError {
    let message = format!("both {first} and {second} are there, expected one of them");
    ApiError::field("invalid_value", second, message)
}

fn response_format(fields: &mut Fields<'_>) -> Result<Option<AskedAnswer>, ApiError> {
    let Some(mut format) = fields.object("response_format")? else {
        return Ok(None);
    };
    match format.required_string("type")? {
        "text" => Ok(None),
        "json_object" => match format.get("schema") {
            // So do clients write it that know no json_schema.
            Some(schema) => json_schema(schema, &format.path("schema")).map(Some),
            None => Ok(Some(AskedAnswer {
                answer: Answer::JsonObject,
                field: "response_format".to_string(),
            })),
        },
        "json_schema" => {
            let Some(mut named) = format.object("json_schema")? else {
                return Err(format.missing("json_schema", "an object with a schema"));
            };
            named.string("name")?;
            named.string("description")?;
            // The schema holds either way: there is no looser way of holding it.
            named.bool("strict")?;
            let path = named.path("schema");
            let schema = named.required("schema", "a JSON schema")?;
            json_schema(schema, &path).map(Some)
        }
        kind @ ("regex" | "grammar" | "structural_tag") => {
            let why =
                format!("{kind:?}: send structured_outputs.regex or structured_outputs.grammar");
            Err(ApiError::unsupported(format.path("type"), &why))
        }
        other => {
            let expected = "one of text, json_object, json_schema";
            Err(format.wrong("type", &json!(other), expected))
        }
    }
}

fn structured_outputs(fields: &mut Fields<'_>) -> Result<Option<AskedAnswer>, ApiError> {
    let Some(mut own) = fields.object("structured_outputs")? else {
        return Ok(None);
    };
    let off = |value: &Value| *value == json!(false);
    for name in ["disable_any_whitespace", "disable_additional_properties"] {
        own.refuse(name, off, "say it in the schema or in a Lark grammar")?;
    }
    own.accept(&["disable_fallback"]);
    for name in ["whitespace_pattern", "structural_tag"] {
        own.refuse(name, |_| false, "send a Lark grammar")?;
    }
    let path = own.path("json");
    let object = own.bool("json_object")? == Some(true);
    let asked = [
        own.get("json")
            .map(|value| json_schema(value, &path))
            .transpose()?,
        regex(&mut own, "regex")?,
        choice(&mut own, "choice")?,
        lark(&mut own, "grammar")?,
        object.then(|| AskedAnswer {
            answer: Answer::JsonObject,
            field: own.path("json_object"),
        }),
    ];
    // A constraint that is not understood must not be lost among unknown fields.
    if let Some(unknown) = own.unknown().into_iter().next() {
        let why = "expected json, regex, choice, grammar or json_object";
        return Err(ApiError::unsupported(unknown, why));
    }
    match only_one(asked.into_iter().flatten())? {
        Some(asked) => Ok(Some(asked)),
        None => {
            let expected = "one of json, regex, choice, grammar, json_object";
            let value = Value::Object(own.map().clone());
            Err(ApiError::value("structured_outputs", &value, expected))
        }
    }
}

/// A schema: an object, or its text.
pub(crate) fn json_schema(value: &Value, field: &str) -> Result<AskedAnswer, ApiError> {
    let parsed = value
        .as_str()
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    match parsed.as_ref().unwrap_or(value) {
        schema @ Value::Object(_) => Ok(AskedAnswer {
            answer: Answer::JsonSchema(schema.clone()),
            field: field.to_string(),
        }),
        _ => Err(ApiError::value(field, value, "a JSON schema, an object")),
    }
}

fn regex(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<AskedAnswer>, ApiError> {
    let text = fields.string(name)?;
    Ok(text.map(|text| AskedAnswer {
        answer: Answer::Regex(text.to_string()),
        field: fields.path(name),
    }))
}

fn lark(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<AskedAnswer>, ApiError> {
    let text = fields.string(name)?;
    Ok(text.map(|text| AskedAnswer {
        answer: Answer::Lark(text.to_string()),
        field: fields.path(name),
    }))
}

fn choice(fields: &mut Fields<'_>, name: &'static str) -> Result<Option<AskedAnswer>, ApiError> {
    let path = fields.path(name);
    let Some(items) = fields.array(name)? else {
        return Ok(None);
    };
    let numbered = items.iter().enumerate();
    let texts = numbered.map(|(idx, item)| match item {
        Value::String(text) => Ok(text.clone()),
        other => Err(ApiError::value(format!("{path}[{idx}]"), other, "a string")),
    });
    Ok(Some(AskedAnswer {
        answer: Answer::Choice(texts.collect::<Result<_, _>>()?),
        field: path,
    }))
}
