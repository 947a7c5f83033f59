//! Hostile schemas: each ends in a named error, or in a grammar that compiles within the recogniser's limits.

use lockstep_grammar::{SchemaLimits, checked_document};
use serde_json::{Map, Value, json};

use crate::recogniser::Recogniser;

/// Nests a value so deep.
fn nested(levels: usize, wrap: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(json!({"type": "null"}), |schema, _| wrap(schema))
}

fn many<T: Into<Value>>(count: usize, make: impl Fn(usize) -> T) -> Vec<Value> {
    (0..count).map(|index| make(index).into()).collect()
}

fn named(count: usize, make: impl Fn(usize) -> Value) -> Value {
    Value::Object(Map::from_iter(
        (0..count).map(|index| (format!("k{index}"), make(index))),
    ))
}

/// A string under a pattern.
fn text(pattern: &str) -> Value {
    json!({"type": "string", "pattern": pattern})
}

/// An object of so many properties.
fn object(count: usize, make: impl Fn(usize) -> Value) -> Value {
    json!({"type": "object", "properties": named(count, make), "additionalProperties": false})
}

/// So many definitions, the first of them referred to.
fn definitions(count: usize, make: impl Fn(usize) -> Value) -> Value {
    json!({"$ref": "#/$defs/k0", "$defs": named(count, make)})
}

fn to(index: usize) -> Value {
    json!({"$ref": format!("#/$defs/k{index}")})
}

/// One of a chain of 1 000 definitions.
fn linked(i: usize) -> Value {
    match i {
        999 => json!({}),
        i => json!({"properties": {"a": to(i + 1)}, "required": ["a"]}),
    }
}

/// One of two properties is required.
fn either(i: usize) -> Value {
    json!({"anyOf": [{"required": [format!("a{i}")]}, {"required": [format!("b{i}")]}]})
}

#[test]
fn what_is_too_large_or_too_hard_is_refused_by_name() {
    let string = |_: usize| json!({"type": "string"});
    let product = |i: usize| {
        let either = json!({"anyOf": [to((i * 5 + 1) % 12), to((i * 7 + 2) % 12)]});
        json!({"type": "object", "properties": {"a": to((i + 1) % 12), "b": either}})
    };
    let rows: Vec<(&str, Value)> = vec![
        ("schema", json!({"description": "x".repeat(1 << 20)})),
        (
            "schema",
            nested(40, |s| json!({"type": "array", "items": s})),
        ),
        ("schema", nested(100, |s| json!({"anyOf": [s]}))),
        (
            "allOf",
            json!({"allOf": many(10_000, |_| json!({"maximum": 3}))}),
        ),
        (
            "schema",
            json!({"properties": named(200, |_| json!({"allOf": many(60, |_| json!({}))}))}),
        ),
        (
            "schema",
            definitions(2000, |i| json!({"properties": {"a": to((i + 1) % 2000)}})),
        ),
        (
            "$ref",
            definitions(2000, |i| if i == 1999 { json!({}) } else { to(i + 1) }),
        ),
        (
            "anyOf",
            json!({"allOf": many(12, to), "$defs": named(12, product)}),
        ),
        (
            "schema",
            json!({"properties": named(4000, |_| json!(true)), "allOf": many(8, either)}),
        ),
        (
            "schema",
            json!({"type": "array", "prefixItems": many(4000, |_| json!({"minLength": 1}))}),
        ),
        ("properties", object(400, string)),
        ("properties", object(5000, string)),
        ("pattern", text("(a|b)*a(a|b){1500}$")),
        (
            "pattern",
            text("((((a{1,100}){1,100}){1,100}){1,100}){1,100}"),
        ),
        ("pattern", text(&"a".repeat(2001))),
        ("pattern", text(&"(".repeat(500))),
        (
            "pattern",
            json!({"type": "string", "minLength": 100_000, "pattern": "^[a-z]+( [a-z]+)*$"}),
        ),
        (
            "multipleOf",
            json!({"type": "integer", "multipleOf": 99_999}),
        ),
        (
            "minProperties",
            json!({"minProperties": 5, "properties": named(10, string),
            "type": "object", "additionalProperties": false}),
        ),
        (
            "enum",
            json!({"anyOf": many(3, |i| json!({"enum": many(2000, |j| i * 2000 + j)}))}),
        ),
        (
            "anyOf",
            json!({"anyOf": many(257, |i| json!({"const": i}))}),
        ),
        ("oneOf", json!({"oneOf": many(65, |i| json!({"const": i}))})),
        ("maxLength", json!({"maxLength": 10_000_000_000_u64})),
        (
            "const",
            json!({"const": nested(40, |value| json!([value]))}),
        ),
    ];
    for (keyword, schema) in rows {
        match checked_document(&schema, &SchemaLimits::default()) {
            Ok(_) => panic!("taken, expected to be refused for {keyword}: {schema:.300}"),
            Err(error) => assert_eq!(error.keyword, keyword, "{error}"),
        }
    }
}

#[test]
fn what_is_taken_compiles_and_can_be_written() {
    let kinds = |i: usize| {
        let properties = json!({"kind": {"const": format!("k{i}")}, "x": {"type": "string"}});
        json!({"type": "object", "properties": properties, "required": ["kind"]})
    };
    let doubled = |i: usize| match i {
        29 => json!({"type": "string"}),
        i => json!({"type": "array", "prefixItems": [to(i + 1), to(i + 1)]}),
    };
    let woven = |i: usize| json!({"properties": {"a": to((i + 1) % 4), "b": to((i * 3) % 4)}});
    let keys = (0..16).map(|i| (format!("^k{i}_[a-z]{{1,30}}$"), json!({"type": "integer"})));
    let mut one_of_sixty = object(60, |_| json!({"type": "string"}));
    one_of_sixty["minProperties"] = json!(1);
    let rows: Vec<Value> = vec![
        json!({"enum": many(5000, |i| format!("value number {i}"))}),
        json!({"enum": many(5000, |i| i * 7)}),
        json!({"enum": many(120, |i| format!("{i}{}", "x".repeat(2000)))}),
        text("(a|b)*a(a|b){200}$"),
        text("^((a{1,10}){1,10}){1,10}$"),
        text("^(([a-z]{1,10} ){1,10},){1,10}$"),
        text("^(a+)+$"),
        text("^\\w+([\\.-]?\\w+)*@\\w+([\\.-]?\\w+)*(\\.\\w{2,})+$"),
        text("^[^\\u0000-\\u001f]{1,500}[\\u4e00-\\u9fff]{1,500}$"),
        json!({"allOf": many(8, |i| text(["a", "b", "c", "d", "e", "f", "g", "h"][i]))}),
        json!({"type": "string", "maxLength": 1_000_000}),
        json!({"type": "string", "minLength": 1_000_000}),
        json!({"type": "string", "maxLength": 100_000, "pattern": "^[a-z]+( [a-z]+)*$"}),
        json!({"type": "string", "maxLength": 2083, "minLength": 1, "format": "uri"}),
        json!({"type": "string", "maxLength": 1000, "format": "email"}),
        json!({"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000}),
        json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1_000_000}),
        json!({"type": "array", "prefixItems": many(3000, |_| json!({"type": "integer"}))}),
        json!({"type": "integer", "multipleOf": 9_973}),
        json!({"type": "number", "multipleOf": 0.00001}),
        json!({"anyOf": many(256, kinds)}),
        json!({"oneOf": many(64, kinds)}),
        json!({"allOf": many(8, either)}),
        json!({"allOf": many(4, to), "$defs": named(4, woven)}),
        definitions(30, doubled),
        json!({"type": "array", "prefixItems": many(1000, |i| to(999 - i)), "$defs": named(1000, linked)}),
        nested(31, |s| json!({"type": "array", "items": s})),
        object(300, |_| json!({"type": ["string", "null", "object"]})),
        json!({"type": "object", "properties": named(300, |_| json!(true))}),
        json!({"type": "object", "properties": named(900, |_| json!(true)),
            "required": many(900, |i| format!("k{i}"))}),
        object(
            200,
            |i| json!({"type": "string", "pattern": format!("^[a-z]{{1,20}}{i}$")}),
        ),
        object(200, |i| json!({"type": "string", "maxLength": 100 + i})),
        one_of_sixty,
        json!({"type": "object", "patternProperties": Map::from_iter(keys)}),
    ];
    for schema in rows {
        let shown: String = schema.to_string().chars().take(200).collect();
        let document = match checked_document(&schema, &SchemaLimits::default()) {
            Ok(document) => document,
            Err(error) => panic!("{shown}: {error}"),
        };
        let recogniser = match Recogniser::of_document(&document) {
            Ok(recogniser) => recogniser,
            Err(error) => panic!("{shown}: {error}"),
        };
        let mut turn = 0;
        let (written, is_complete) = recogniser.walk(100, &mut |count| {
            turn += 7;
            turn % count
        });
        assert!(
            is_complete || written.len() == 100,
            "{shown} ends after {written}"
        );
    }
}
