//! Parameters of tools, in formats where strings are raw: whatever the forms of a parameter can write is read back by
//! the parser as a value that the schema admits.

use std::cell::Cell;
use std::sync::Arc;

use lockstep_grammar::{
    Parameter, SchemaError, SchemaLimits, Strictness, ToolParameters, ValueForm,
};
use lockstep_tags::{Delivery, Ended, ParserOptions, TagEvent, TagFormat, TagParser, ToolSet};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::random::{Tape, rooted, runner, schema};
use crate::recogniser::Recogniser;
use crate::validator::{has_exact_numbers, is_valid};

fn read(schema: &Value, strictness: Strictness) -> Result<ToolParameters, SchemaError> {
    ToolParameters::read(Some(schema), strictness, &SchemaLimits::default())
}

/// The parameters of a schema under which they can be told apart.
fn parameters(schema: &Value) -> Vec<Parameter> {
    let tool = read(schema, Strictness::Schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    tool.parameters
        .unwrap_or_else(|error| panic!("{schema}: {error}"))
}

/// A recogniser of a form's texts.
fn recogniser(form: &ValueForm) -> Recogniser {
    let compiled = match form {
        ValueForm::Json(document) => Recogniser::of_document(document),
        // As the envelopes do it: the empty text apart.
        ValueForm::Raw(raw) => {
            let optional = if raw.admits_empty { "?" } else { "" };
            let expression = &raw.expression;
            Recogniser::of_lark(&format!(
                "start: T{optional}\nT: ({expression}) & /(?s:.+)/"
            ))
        }
    };
    compiled.unwrap_or_else(|error| panic!("{form:?}: {error}"))
}

/// What the parser makes of a raw text for parameter `p`, or the error's kind.
fn read_back(schema: &Value, text: &str) -> Result<Value, String> {
    let declared = schema.to_string();
    let tools = ToolSet::new([("f".to_string(), Some(declared.as_str()))]);
    let mut parser = TagParser::new(ParserOptions {
        format: TagFormat::Glm,
        starts_in_reasoning: false,
        reasoning: false,
        delivery: Delivery::Whole,
        tools: Arc::new(tools.expect("a schema that the parser takes")),
    });
    let call =
        format!("<tool_call>f\n<arg_key>p</arg_key>\n<arg_value>{text}</arg_value>\n</tool_call>");
    let mut events = Vec::new();
    parser
        .push(&call, &mut events)
        .map_err(|error| format!("{error:?}"))?;
    parser
        .finish(Ended::Eos, &mut events)
        .map_err(|error| format!("{error:?}"))?;
    let arguments: String = events
        .iter()
        .filter_map(|event| match event {
            TagEvent::CallArguments { fragment, .. } => Some(fragment.as_str()),
            _ => None,
        })
        .collect();
    let arguments: Value =
        serde_json::from_str(&arguments).map_err(|e| format!("{arguments}: {e}"))?;
    arguments
        .get("p")
        .cloned()
        .ok_or_else(|| format!("no `p` in {arguments}"))
}

/// Texts that parameter `p` of this schema may be written as, and texts that it may not.
fn check(schema: Value, taken: &[&str], refused: &[&str]) {
    let tool = json!({"type": "object", "properties": {"p": schema}});
    let parameters = parameters(&tool);
    let forms: Vec<Recogniser> = parameters[0].forms.iter().map(recogniser).collect();
    for text in taken {
        assert!(
            forms.iter().any(|form| form.accepts(text)),
            "{schema} refuses {text:?}"
        );
        let value =
            read_back(&tool, text).unwrap_or_else(|error| panic!("{schema}, {text:?}: {error}"));
        assert!(
            is_valid(&schema, &schema, &value),
            "{schema}: {text:?} is read as {value}"
        );
    }
    for text in refused {
        assert!(
            !forms.iter().any(|form| form.accepts(text)),
            "{schema} takes {text:?}"
        );
    }
}

#[test]
fn raw_texts_are_read_back_as_valid_values() {
    check(
        json!({"type": "string"}),
        &["", "a\nb", "null", "1", "{", "\"x\""],
        &[],
    );
    check(
        json!({"type": "string", "enum": ["a", "b c", ""]}),
        &["a", "b c", ""],
        &["c", "a "],
    );
    check(
        json!({"type": "string", "pattern": "^[0-9]+$", "maxLength": 2}),
        &["1", "42"],
        &["", "421", "x"],
    );
    check(json!({"type": "string", "minLength": 1}), &["日"], &[""]);
    check(
        json!({"type": "integer"}),
        &["1", "-5"],
        &["x", "\"1\"", ""],
    );
    check(
        json!({"type": ["string", "null"]}),
        &["null", "nul", "", "1", "true", "[1]"],
        &[" null ", "null\n"],
    );
    check(
        json!({"type": ["string", "integer"], "maximum": 5, "maxLength": 3}),
        &["5", "abc", "1.5", "nul"],
        &["6", "6 ", "1.0", "1e1", "abcd"],
    );
    check(
        json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "null"}}]}),
        &["x", "[null]", "{}", "1"],
        &["[1]", " [x", "["],
    );
    check(
        json!({"enum": ["a", 1, null]}),
        &["a", "1", "null"],
        &["b", "\"a\"", "2"],
    );
    check(json!({}), &["x", "1", "{\"a\":1}", "", "[1"], &[]);
    check(
        json!({"minLength": 2, "minimum": 3}),
        &["ab", "5", "{}", "true"],
        &["a", "1", "\"\"", "\"ab\""],
    );
    check(
        json!({"type": "string", "nullable": true}),
        &["null", "x"],
        &[],
    );
    check(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
        &["{}", "{\"a\":\"x\"}"],
        &["{\"b\":1}", "x"],
    );
}

#[test]
fn parameters_come_in_order_and_only_declared_ones() {
    let tool = json!({
        "type": "object",
        "properties": {"z": {"type": "string"}, "a": {"$ref": "#/$defs/tree"}},
        "required": ["a", "other"],
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
    });
    let read = read(&tool, Strictness::Schema).expect("a schema that is enforced");
    let list = read.parameters.expect("one form");
    let shown: Vec<(&str, bool)> = list.iter().map(|p| (p.name.as_str(), p.required)).collect();
    assert_eq!(shown, [("z", false), ("a", true), ("other", true)]);
    let tree = recogniser(&list[1].forms[0]);
    assert!(tree.accepts("[[],[[]]]") && !tree.accepts("[1]"));
    let document = Recogniser::of_document(&read.document).expect("a document that compiles");
    assert!(document.accepts(r#"{"z":"x","a":[],"other":3}"#));
    assert!(!document.accepts(r#"{"a":[],"other":3,"more":1}"#));

    let open =
        json!({"type": "object", "properties": {"a": {"const": 1}}, "additionalProperties": true});
    let open = self::read(&open, Strictness::Schema).expect("a schema that is enforced");
    let document = Recogniser::of_document(&open.document).expect("a document that compiles");
    assert!(document.accepts(r#"{"a":1,"more":{}}"#) && !document.accepts(r#"{"a":2}"#));
}

#[test]
fn forms_of_the_arguments_are_told_apart_in_json_alone() {
    let tool = json!({"type": "object", "oneOf": [
        {"properties": {"k": {"const": "a"}}, "required": ["k"]},
        {"properties": {"k": {"const": "b"}, "x": {"type": "integer"}}, "required": ["k", "x"]},
    ]});
    let read = read(&tool, Strictness::Schema).expect("a document");
    assert_eq!(
        read.parameters.map_err(|error| error.keyword),
        Err("anyOf".to_string())
    );
    let document = Recogniser::of_document(&read.document).expect("a document that compiles");
    assert!(document.accepts(r#"{"k":"a"}"#) && document.accepts(r#"{"k":"b","x":1}"#));
    assert!(!document.accepts(r#"{"k":"b"}"#) && !document.accepts(r#"{"k":"a","x":1}"#));
}

#[test]
fn no_parameters_and_no_object() {
    let none = ToolParameters::read(None, Strictness::Schema, &SchemaLimits::default());
    let none = none.expect("no parameters");
    assert_eq!(none.parameters, Ok(Vec::new()));
    let document = Recogniser::of_document(&none.document).expect("a document that compiles");
    assert!(document.accepts("{}") && !document.accepts("{\"a\":1}"));
    for schema in [json!({"type": "string"}), json!(false), json!({"const": 1})] {
        assert!(read(&schema, Strictness::Shape).is_err(), "{schema}");
    }
}

#[test]
fn shape_leaves_out_what_cannot_be_enforced() {
    let tool = json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer", "not": {"const": 3}, "minimum": 2},
            "s": {"type": "string", "pattern": "(?=a)", "format": "unknown"},
            "u": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            "o": {"type": "object", "propertyNames": {"pattern": "a"}, "minProperties": 3},
        },
        "required": ["n"],
        "if": {"required": ["s"]},
    });
    assert!(read(&tool, Strictness::Schema).is_err());
    let read = read(&tool, Strictness::Shape).expect("the shape");
    let list = read.parameters.expect("one form");
    assert_eq!(list.len(), 4);
    let n = recogniser(&list[0].forms[0]);
    assert!(n.accepts("3") && !n.accepts("1") && !n.accepts("x"));
    assert!(recogniser(&list[1].forms[0]).accepts("any text"));
    assert!(recogniser(&list[2].forms[0]).accepts("1.5"));
    assert!(recogniser(&list[3].forms[0]).accepts("{}"));
}

#[test]
fn whatever_the_forms_write_is_read_back_as_valid() {
    let [tools, texts, raw, partial] = [const { Cell::new(0_usize) }; 4];
    let count = |cell: &Cell<usize>| cell.set(cell.get() + 1);
    let tapes = proptest::collection::vec(any::<u16>(), 0..300);
    let result = runner(400).run(&tapes, |choices| {
        let mut tape = Tape::new(&choices);
        let mut tool = json!({"type": "object"});
        let definitions = rooted(&mut tape)["$defs"].clone();
        tool["properties"] = json!({"p": schema(&mut tape, 2)});
        tool["$defs"] = definitions;
        let strictness = if tape.chance(3) {
            Strictness::Shape
        } else {
            Strictness::Schema
        };
        let Ok(Ok(list)) = read(&tool, strictness).map(|read| read.parameters) else {
            return Ok(());
        };
        let Some(parameter) = list.first() else {
            return Ok(());
        };
        count(&tools);
        for form in &parameter.forms {
            let recogniser = recogniser(form);
            let is_raw = matches!(form, ValueForm::Raw(_));
            for _ in 0..6 {
                let (text, is_complete) = recogniser.walk(60, &mut |count| tape.below(count));
                // The tag cannot stand in a value, and the envelopes see to that.
                if !is_complete || text.contains("</arg_value>") {
                    count(&partial);
                    continue;
                }
                count(if is_raw { &raw } else { &texts });
                match read_back(&tool, &text) {
                    // A number beyond all doubles is JSON, and the tests can't hold it.
                    Err(error) if error.contains("number out of range") => count(&partial),
                    Err(error) => {
                        return Err(TestCaseError::fail(format!("{tool}: {text:?}: {error}")));
                    }
                    Ok(value) if !has_exact_numbers(&value) => count(&partial),
                    Ok(value) if strictness == Strictness::Schema => prop_assert!(
                        is_valid(&tool, &tool["properties"]["p"], &value),
                        "{}: {:?} of {:?} is read as {}",
                        tool,
                        text,
                        form,
                        value
                    ),
                    Ok(_) => {}
                }
            }
        }
        Ok(())
    });
    let counts = [&tools, &texts, &raw, &partial].map(Cell::get);
    println!("tools, JSON, raw, cut off: {counts:?}");
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(
        counts[0] > 200 && counts[1] > 200 && counts[2] > 200,
        "{counts:?}"
    );
}
