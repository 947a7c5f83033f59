//! Whether a call's arguments are of the tool's schema: JSON Schema as tools use it. It must never guess: what
//! it doesn't judge is named before anything is sent, and is no reason to call a call malformed.

use serde_json::{Map, Value};

/// Keywords that say something of a value and are judged here.
const JUDGED: &[&str] = &[
    "type",
    "const",
    "enum",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "$ref",
    "nullable",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "prefixItems",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];
/// Keywords that say nothing of a value.
const SILENT: &[&str] = &[
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "strict",
];
/// Schemas inside each other at most.
const DEPTH_MAX: usize = 64;

/// A schema that can be judged by.
///
/// # Errors
/// The place of what is no schema, and what it is.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    walk(schema, &mut |keywords, place| {
        let words: Vec<&Value> = match keywords.get("type") {
            None => Vec::new(),
            Some(Value::Array(words)) => words.iter().collect(),
            Some(word) => vec![word],
        };
        let known = [
            "null", "boolean", "number", "integer", "string", "array", "object",
        ];
        for word in words {
            if !word.as_str().is_some_and(|word| known.contains(&word)) {
                return Err(format!("{place}: type is {word}"));
            }
        }
        let reference = keywords
            .get("$ref")
            .map(|to| to.as_str().unwrap_or_default());
        if let Some(to) = reference
            && resolved(schema, to).is_none()
        {
            return Err(format!("{place}: $ref {to:?} leads nowhere in this schema"));
        }
        Ok(())
    })
}

/// Keywords of a schema that are not judged, each once.
pub fn unjudged(schema: &Value) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let done = walk(schema, &mut |keywords, _| {
        for key in keywords.keys() {
            let known = JUDGED.contains(&key.as_str()) || SILENT.contains(&key.as_str());
            if !known && !found.contains(key) {
                found.push(key.clone());
            }
        }
        Ok(())
    });
    // Nothing above refuses, and what is no schema was refused before.
    let _ = done;
    found
}

type Visit<'a> = dyn FnMut(&Map<String, Value>, &str) -> Result<(), String> + 'a;

/// Visits a schema and those inside it.
fn walk(schema: &Value, visit: &mut Visit<'_>) -> Result<(), String> {
    walk_at(schema, "", 0, visit)
}

fn walk_at(schema: &Value, place: &str, depth: usize, visit: &mut Visit<'_>) -> Result<(), String> {
    let keywords = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(keywords) => keywords,
        other => return Err(format!("{place}: {other} is no schema")),
    };
    if depth > DEPTH_MAX {
        return Err(format!(
            "{place}: more than {DEPTH_MAX} schemas inside each other"
        ));
    }
    visit(keywords, place)?;
    for (key, value) in keywords {
        let place = format!("{place}/{key}");
        match (key.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(members)) => {
                for (name, member) in members {
                    walk_at(member, &format!("{place}/{name}"), depth + 1, visit)?;
                }
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(items)) => {
                for (idx, item) in items.iter().enumerate() {
                    walk_at(item, &format!("{place}/{idx}"), depth + 1, visit)?;
                }
            }
            ("not" | "items" | "additionalProperties", value) => {
                walk_at(value, &place, depth + 1, visit)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn resolved<'a>(root: &'a Value, to: &str) -> Option<&'a Value> {
    to.strip_prefix('#')
        .and_then(|pointer| root.pointer(pointer))
}

/// Why a value is not of the schema; none if it is.
pub fn misfit(schema: &Value, value: &Value) -> Option<String> {
    let judge = Judge { root: schema };
    judge.misfit(schema, value, "", 0)
}

struct Judge<'a> {
    root: &'a Value,
}

impl Judge<'_> {
    fn misfit(&self, schema: &Value, value: &Value, at: &str, depth: usize) -> Option<String> {
        let here = if at.is_empty() { "the arguments" } else { at };
        let keywords = match schema {
            Value::Bool(true) => return None,
            Value::Bool(false) => return Some(format!("{here}: nothing is allowed")),
            Value::Object(keywords) => keywords,
            _ => return None,
        };
        // References may go in circles, which no value of finite depth needs more often than this.
        if depth > 4 * DEPTH_MAX {
            return Some(format!(
                "{here}: the schema refers to itself without an end"
            ));
        }
        if keywords.get("nullable") == Some(&Value::Bool(true)) && value.is_null() {
            return None;
        }
        keywords.iter().find_map(|(keyword, argument)| {
            let wrong = self.applied((keywords, keyword, argument), value, at, depth);
            wrong.or_else(|| {
                let wrong = bound(keyword, argument, value)?;
                Some(format!("{here}: {wrong}"))
            })
        })
    }

    /// Keywords that apply schemas to the value or to what is in it.
    fn applied(
        &self,
        (keywords, keyword, argument): (&Map<String, Value>, &str, &Value),
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Option<String> {
        let here = if at.is_empty() { "the arguments" } else { at };
        let inner =
            |schema: &Value, value: &Value, at: &str| self.misfit(schema, value, at, depth + 1);
        let list = argument.as_array().map_or(&[][..], Vec::as_slice);
        let num_fits = || {
            list.iter()
                .filter(|s| inner(s, value, at).is_none())
                .count()
        };
        match (keyword, value) {
            ("allOf", _) => list.iter().find_map(|schema| inner(schema, value, at)),
            ("anyOf", _) => (num_fits() == 0).then(|| format!("{here}: fits no branch of anyOf")),
            ("oneOf", _) => match num_fits() {
                1 => None,
                num => Some(format!("{here}: fits {num} branches of oneOf")),
            },
            ("not", _) => {
                let is_misfit = inner(argument, value, at).is_some();
                (!is_misfit).then(|| format!("{here}: fits what it must not"))
            }
            ("$ref", _) => inner(resolved(self.root, argument.as_str()?)?, value, at),
            ("properties", Value::Object(members)) => members.iter().find_map(|(key, member)| {
                inner(argument.get(key)?, member, &format!("{at}/{key}"))
            }),
            ("additionalProperties", Value::Object(members)) => {
                // Which names a pattern takes is not judged, so nothing is said of the rest.
                if keywords.contains_key("patternProperties") {
                    return None;
                }
                let declared = keywords.get("properties");
                let is_declared = |key: &str| declared.is_some_and(|d| d.get(key).is_some());
                let others = members.iter().filter(|(key, _)| !is_declared(key));
                { others }.find_map(|(key, member)| match argument {
                    Value::Bool(false) => Some(format!("{here}: {key:?} is no parameter")),
                    schema => inner(schema, member, &format!("{at}/{key}")),
                })
            }
            ("prefixItems", Value::Array(items)) => {
                let pairs = list.iter().zip(items).enumerate();
                { pairs }
                    .find_map(|(idx, (schema, item))| inner(schema, item, &format!("{at}/{idx}")))
            }
            ("items", Value::Array(items)) => {
                let prefix = keywords.get("prefixItems").and_then(Value::as_array);
                let rest = items.iter().enumerate().skip(prefix.map_or(0, Vec::len));
                { rest }.find_map(|(idx, item)| inner(argument, item, &format!("{at}/{idx}")))
            }
            _ => None,
        }
    }
}

/// Keywords that look at the value itself.
fn bound(keyword: &str, argument: &Value, value: &Value) -> Option<String> {
    let list = argument.as_array().map_or(&[][..], Vec::as_slice);
    let wrong = || format!("{value} breaks {keyword} {argument}");
    let number = |holds: fn(f64, f64) -> bool| {
        let (value, limit) = (value.as_f64()?, argument.as_f64()?);
        (!holds(value, limit)).then(wrong)
    };
    let count = |num: usize| {
        let limit = argument.as_u64()?;
        let holds = match keyword.starts_with("min") {
            true => num as u64 >= limit,
            false => num as u64 <= limit,
        };
        (!holds).then(|| format!("{num} breaks {keyword} {limit}"))
    };
    match (keyword, value) {
        ("type", _) => {
            let words = match argument {
                Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
                word => Vec::from_iter(word.as_str()),
            };
            let fits = words.iter().any(|word| has_type(word, value));
            (!fits).then(|| format!("{value} is no {}", words.join(" or ")))
        }
        ("const", _) => (!same(argument, value)).then(wrong),
        ("enum", _) => (!list.iter().any(|literal| same(literal, value))).then(wrong),
        ("minimum", _) => number(|value, limit| value >= limit),
        ("maximum", _) => number(|value, limit| value <= limit),
        ("exclusiveMinimum", _) => number(|value, limit| value > limit),
        ("exclusiveMaximum", _) => number(|value, limit| value < limit),
        ("multipleOf", _) => number(|value, of| {
            let times = value / of;
            of <= 0.0 || (times - times.round()).abs() <= 1e-9 * times.abs().max(1.0)
        }),
        ("minLength" | "maxLength", Value::String(text)) => count(text.chars().count()),
        ("minItems" | "maxItems", Value::Array(items)) => count(items.len()),
        ("minProperties" | "maxProperties", Value::Object(members)) => count(members.len()),
        ("uniqueItems", Value::Array(items)) if argument == true => {
            let twice = |(idx, item)| items[..idx].iter().any(|before| same(before, item));
            items.iter().enumerate().any(twice).then(wrong)
        }
        ("required", Value::Object(members)) => {
            let names = list.iter().filter_map(Value::as_str);
            let missing = { names }.find(|name| !members.contains_key(*name))?;
            Some(format!("{missing:?} is missing"))
        }
        _ => None,
    }
}

fn has_type(word: &str, value: &Value) -> bool {
    match word {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(is_whole),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn is_whole(number: f64) -> bool {
    number.fract() == 0.0
}

/// Equal, 1 being 1.0.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pair = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| same(a, b));
            a.len() == b.len() && a.iter().all(pair)
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_fit_or_not() {
        let object = json!({"type": "object", "required": ["time"], "additionalProperties": false,
            "properties": {"time": {"type": "string", "minLength": 2},
                           "days": {"type": "array", "items": {"enum": ["mo", "tu"]}},
                           "tree": {"$ref": "#/$defs/tree"}},
            "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}});
        let rows = [
            (&object, json!({"time": "12:15"}), None),
            (
                &object,
                json!({"time": "12:15", "days": ["mo"], "tree": [[], [[]]]}),
                None,
            ),
            (&object, json!({}), Some("\"time\" is missing")),
            (&object, json!([]), Some("[] is no object")),
            (&object, json!({"time": 5}), Some("/time: 5 is no string")),
            (
                &object,
                json!({"time": "1"}),
                Some("/time: 1 breaks minLength 2"),
            ),
            (
                &object,
                json!({"time": "12", "x": 1}),
                Some("\"x\" is no parameter"),
            ),
            (
                &object,
                json!({"time": "12", "days": ["mo", "x"]}),
                Some("/days/1"),
            ),
            (
                &object,
                json!({"time": "12", "tree": [[], [1]]}),
                Some("/tree/1/0: 1 is no array"),
            ),
            (&json!({"type": ["integer", "null"]}), json!(1.0), None),
            (
                &json!({"type": ["integer", "null"]}),
                json!(1.5),
                Some("1.5 is no integer or null"),
            ),
            (&json!({"const": 1}), json!(1.0), None),
            (
                &json!({"anyOf": [{"type": "null"}, {"minimum": 3}]}),
                json!(2),
                Some("anyOf"),
            ),
            (
                &json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}),
                json!(2),
                Some("fits 2"),
            ),
            (
                &json!({"allOf": [{"maximum": 1}, {"maximum": 2}]}),
                json!(2),
                Some("maximum 1"),
            ),
            (
                &json!({"not": {"type": "null"}}),
                json!(null),
                Some("must not"),
            ),
            (&json!({"multipleOf": 0.1}), json!(0.3), None),
            (&json!({"multipleOf": 2}), json!(3), Some("multipleOf")),
            (
                &json!({"uniqueItems": true}),
                json!([1, 2, 1.0]),
                Some("uniqueItems"),
            ),
            (
                &json!({"prefixItems": [true, false], "items": true}),
                json!([1, 2]),
                Some("/1"),
            ),
            (
                &json!({"type": "string", "nullable": true}),
                json!(null),
                None,
            ),
            (&json!({"pattern": "^a"}), json!("b"), None),
            (&json!(false), json!(1), Some("nothing is allowed")),
        ];
        for (schema, value, expected) in rows {
            check_schema(schema).expect("a schema");
            match (misfit(schema, &value), expected) {
                (None, None) => {}
                (Some(what), Some(part)) => assert!(what.contains(part), "{value}: {what}"),
                (found, expected) => panic!("{value}: {found:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn a_circle_ends() {
        let circle = json!({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"});
        check_schema(&circle).expect("it leads somewhere");
        let what = misfit(&circle, &json!(1)).expect("nothing fits");
        assert!(what.contains("without an end"), "{what}");
    }

    #[test]
    fn what_is_not_judged_is_named() {
        let schema = json!({"type": "object", "title": "t", "patternProperties": {},
            "properties": {"a": {"type": "string", "format": "date", "pattern": "x"},
                           "b": {"items": {"format": "uri"}}}});
        assert_eq!(
            unjudged(&schema),
            ["patternProperties", "format", "pattern"]
        );
        for (schema, part) in [
            (json!([]), "no schema"),
            (
                json!({"properties": {"a": 1}}),
                "/properties/a: 1 is no schema",
            ),
            (
                json!({"items": {"type": "text"}}),
                "/items: type is \"text\"",
            ),
            (json!({"$ref": "#/$defs/no"}), "leads nowhere"),
        ] {
            let error = check_schema(&schema).expect_err("no schema");
            assert!(error.contains(part), "{error}");
        }
    }
}
