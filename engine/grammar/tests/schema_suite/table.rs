//! Tables: what is accepted, what is refused and by which name.

use lockstep_grammar::{SchemaLimits, checked_document};
use serde_json::{Value, json};

use crate::recogniser::Recogniser;

/// The place and the keyword that a schema is refused by.
fn refused(schema: &Value) -> (String, String) {
    match checked_document(schema, &SchemaLimits::default()) {
        Ok(document) => panic!("{schema} is taken as {document}"),
        Err(error) => (error.path, error.keyword),
    }
}

#[test]
fn what_cannot_be_enforced_is_refused_by_place_and_name() {
    let check = |schema: Value, path: &str, keyword: &str| {
        assert_eq!(
            refused(&schema),
            (path.to_string(), keyword.to_string()),
            "{schema}"
        );
    };
    for keyword in [
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "uniqueItems",
        "propertyNames",
        "unevaluatedProperties",
        "unevaluatedItems",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "$dynamicRef",
        "$recursiveRef",
        "minimun",
        "anyof",
        "patern",
        "additionalItems",
        "$vocabulary",
    ] {
        check(json!({ keyword: true }), "", keyword);
        check(
            json!({"properties": {"a": {"items": { keyword: {} }}}}),
            "/properties/a/items",
            keyword,
        );
    }
    check(json!({"type": "text"}), "", "type");
    check(json!({"type": []}), "", "type");
    check(json!({"enum": []}), "", "enum");
    check(json!({"anyOf": []}), "", "anyOf");
    check(json!({"const": 1e300}), "", "const");
    check(json!({"const": 9007199254740993_i64}), "", "const");
    check(json!({"minimum": "1"}), "", "minimum");
    check(json!({"minLength": -1}), "", "minLength");
    check(json!({"minLength": 1.5}), "", "minLength");
    check(json!({"multipleOf": 0}), "", "multipleOf");
    check(json!({"multipleOf": 1.23456789}), "", "multipleOf");
    check(json!({"format": "idn-email"}), "", "format");
    check(json!({"format": "unknown"}), "", "format");
    check(
        json!({"$id": "http://a/", "items": {"$id": "b"}}),
        "/items",
        "$id",
    );
    check(json!({"$schema": "http://example.com/own"}), "", "$schema");
    check(json!({"required": "a"}), "", "required");
    check(json!({"properties": {"a": 3}}), "/properties/a", "schema");
    check(json!(3), "", "schema");
    check(
        json!({"properties": {"a/b": {"not": {}}}}),
        "/properties/a~1b",
        "not",
    );
}

#[test]
fn patterns_that_mean_something_else_are_refused() {
    for pattern in [
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(a)\\1",
        "\\bword",
        "\\p{L}",
        "a^b",
        "a$b",
        "(",
        ")",
        "[a",
        "a**",
        "\\",
        "(?i)a",
        "\\u{110000}",
        "\\ud83d",
        "a{2,1}",
        "a{99999}",
        "\\z",
        "(^)*",
        "[z-a]",
    ] {
        let schema = json!({"properties": {"s": {"pattern": pattern}}});
        let found = refused(&schema);
        assert_eq!(
            found,
            ("/properties/s".to_string(), "pattern".to_string()),
            "{pattern}"
        );
    }
}

#[test]
fn references_are_followed_and_cycles_without_a_guard_refused() {
    let check = |schema: Value, path: &str, keyword: &str| {
        assert_eq!(
            refused(&schema),
            (path.to_string(), keyword.to_string()),
            "{schema}"
        );
    };
    check(json!({"$ref": "#"}), "", "$ref");
    check(
        json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
        "/anyOf/0",
        "$ref",
    );
    let both = json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}});
    check(both, "/$defs/b", "$ref");
    check(json!({"$ref": "#/$defs/none"}), "", "$ref");
    check(json!({"$ref": "#name"}), "", "$ref");
    check(json!({"$ref": "http://example.com/a"}), "", "$ref");
    // Guarded, but no finite value fits.
    let endless = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
    check(endless, "", "schema");
    let tree = json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": false});
    let tree = accepted(&tree);
    assert!(tree.accepts(r#"{"a":{"a":{}}}"#));
    assert!(!tree.accepts(r#"{"a":{"b":{}}}"#));
}

#[test]
fn schemas_that_nothing_satisfies_are_refused() {
    for schema in [
        json!(false),
        json!({"not_a_keyword": 1, "type": "string"}),
        json!({"type": "string", "minLength": 3, "maxLength": 2}),
        json!({"type": "string", "pattern": "^a", "allOf": [{"pattern": "^b"}]}),
        json!({"type": "string", "pattern": "^[\\u0001\\u007f]+$"}),
        json!({"type": "string", "const": 3}),
        json!({"const": "\u{1}"}),
        json!({"type": "integer", "minimum": 3, "maximum": 2}),
        json!({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4}),
        json!({"type": "integer", "minimum": 7, "maximum": 9, "multipleOf": 10}),
        json!({"type": "array", "minItems": 3, "maxItems": 2}),
        json!({"type": "array", "items": false, "minItems": 1}),
        json!({"type": "object", "properties": {"a": false}, "required": ["a"]}),
        json!({"type": "object", "required": ["a"], "additionalProperties": false}),
        json!({"type": "object", "minProperties": 2, "maxProperties": 1}),
        json!({"allOf": [{"type": "string"}, {"type": "null"}]}),
    ] {
        refused(&schema);
    }
}

fn accepted(schema: &Value) -> Recogniser {
    let document = match checked_document(schema, &SchemaLimits::default()) {
        Ok(document) => document,
        Err(error) => panic!("{schema}: {error}"),
    };
    match Recogniser::of_document(&document) {
        Ok(recogniser) => recogniser,
        Err(error) => panic!("{schema} as {document}: {error}"),
    }
}

/// Texts that a schema takes, and texts that it doesn't.
fn check(schema: Value, taken: &[&str], refused: &[&str]) {
    let recogniser = accepted(&schema);
    for text in taken {
        assert!(recogniser.accepts(text), "{schema} refuses {text}");
    }
    for text in refused {
        assert!(!recogniser.accepts(text), "{schema} takes {text}");
    }
}

#[test]
fn numbers_keep_their_bounds() {
    check(
        json!({"type": "integer"}),
        &["0", "-3", "10"],
        &["3.0", "1e2", "01", "+1", "x"],
    );
    check(
        json!({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}),
        &["0.1", "0.5"],
        &["0", "0.0", "-0", "0.51"],
    );
    check(
        json!({"type": "number", "minimum": -0.5, "exclusiveMaximum": 0}),
        &["-0.1", "-0.5"],
        &["0", "-0", "-0.0", "-0.51"],
    );
    check(json!({"const": 1}), &["1"], &["2", "-1", "10"]);
    check(json!({"const": 1.0}), &["1"], &["2"]);
    check(
        json!({"enum": [1.5, "a", null]}),
        &["1.5", "\"a\"", "null"],
        &["1", "\"b\"", "1.6"],
    );
    check(
        json!({"type": "number", "multipleOf": 0.01}),
        &["1.25", "-0.5"],
        &["1.255", "0.001"],
    );
    check(
        json!({"type": "integer", "multipleOf": 3}),
        &["-6", "0", "9"],
        &["-5", "1"],
    );
    check(
        json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 3.5}),
        &["2", "3"],
        &["1", "4"],
    );
}

#[test]
fn strings_keep_their_bounds() {
    check(
        json!({"type": "string", "minLength": 1, "maxLength": 2}),
        &["\"a\"", "\"日本\"", "\"\\n\\\"\"", "\"😀😀\""],
        &["\"\"", "\"abc\"", "\"\\u0041\"", "\"日本語\""],
    );
    check(
        json!({"type": "string", "pattern": "b+$"}),
        &["\"abb\""],
        &["\"bba\"", "\"\""],
    );
    check(
        json!({"type": "string", "pattern": "^a|b$"}),
        &["\"ax\"", "\"xb\""],
        &["\"xax\""],
    );
    check(
        json!({"type": "string", "pattern": "^(?:^a|b)c"}),
        &["\"ac\"", "\"bcx\""],
        &["\"c\""],
    );
    check(
        json!({"type": "string", "pattern": "^\\d$"}),
        &["\"5\""],
        &["\"٣\"", "\"55\""],
    );
    check(
        json!({"type": "string", "pattern": "^\\s$"}),
        &["\"\\t\"", "\"\u{feff}\""],
        &["\"\u{85}\""],
    );
    check(
        json!({"type": "string", "pattern": "^.$"}),
        &["\"a\"", "\"😀\""],
        &["\"\\n\"", "\"\u{2028}\""],
    );
    check(
        json!({"type": "string", "pattern": "^[^\\]a-c]/$"}),
        &["\"d/\""],
        &["\"]/\"", "\"a/\""],
    );
    check(
        json!({"type": "string", "format": "date"}),
        &["\"2024-02-29\"", "\"2000-02-29\""],
        &["\"2023-02-29\"", "\"1900-02-29\"", "\"2024-04-31\""],
    );
    check(
        json!({"type": "string", "pattern": "a", "allOf": [{"pattern": "b"}, {"format": "hostname"}]}),
        &["\"ab\"", "\"b.a\""],
        &["\"a\"", "\"b\"", "\"a-b-\""],
    );
    check(
        json!({"enum": ["a", "ab", "\n"], "maxLength": 1}),
        &["\"a\"", "\"\\n\""],
        &["\"ab\""],
    );
}

#[test]
fn objects_and_arrays_keep_their_bounds() {
    let ab = json!({"a": {"type": "integer"}, "b": {"type": "null"}});
    check(
        json!({"type": "object", "properties": ab, "required": ["b"], "additionalProperties": false}),
        &[
            r#"{"b":null}"#,
            r#"{"a":1,"b":null}"#,
            "{ \"a\" : 1 , \"b\" : null }",
        ],
        &[
            "{}",
            r#"{"a":1}"#,
            r#"{"b":null,"c":1}"#,
            r#"{"a":"1","b":null}"#,
        ],
    );
    check(
        json!({"type": "object", "properties": ab}),
        &["{}", r#"{"a":1,"c":[1,{"a":"x"}]}"#],
        &[r#"{"a":"x"}"#, r#"{"c":1,"a":"x"}"#, r#"{"\u0061":"x"}"#],
    );
    let closed = |min: u64, max: u64| {
        let properties = json!({"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}});
        json!({"type": "object", "properties": properties, "additionalProperties": false,
            "minProperties": min, "maxProperties": max})
    };
    check(
        closed(1, 2),
        &[r#"{"a":1}"#, r#"{"c":3}"#, r#"{"a":1,"c":3}"#],
        &["{}", r#"{"a":1,"b":2,"c":3}"#],
    );
    check(
        closed(3, 3),
        &[r#"{"a":1,"b":2,"c":3}"#],
        &["{}", r#"{"a":1,"b":2}"#],
    );
    check(
        json!({"type": "object", "properties": ab, "minProperties": 1}),
        &[r#"{"a":1}"#, r#"{"x":1}"#],
        &["{}"],
    );
    check(
        json!({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 1, "maxProperties": 2}),
        &[r#"{"a":null}"#, r#"{"x":null,"y":null}"#],
        &["{}", r#"{"x":1}"#, r#"{"x":null,"y":null,"z":null}"#],
    );
    check(
        json!({"type": "object", "properties": {"x_a": {"minimum": 3}, "y": {}},
            "patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": false}),
        &[r#"{"x_a":3}"#, r#"{"y":"s","x_b":1}"#],
        &[
            r#"{"x_a":2}"#,
            r#"{"x_a":3.5}"#,
            r#"{"x_b":null}"#,
            r#"{"z":1}"#,
        ],
    );
    check(
        json!({"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "boolean"}, "maxItems": 3}),
        &["[]", "[null]", "[null, true,false]"],
        &["[true]", "[null,null]", "[null,true,true,true]"],
    );
    check(
        json!({"const": {"a": [1, "x"]}}),
        &[r#"{"a":[1,"x"]}"#],
        &[r#"{"a":[1]}"#, "{}"],
    );
}

#[test]
fn choices_are_merged_and_branches_of_one_of_compared() {
    check(
        json!({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "null"}}, {"const": 5}]}),
        &["\"a\"", "[null]", "5"],
        &["6", "[1]"],
    );
    let kinds = json!({"type": "object", "required": ["kind"], "oneOf": [
        {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}},
        {"properties": {"kind": {"const": "b"}, "x": {"type": "string"}}, "required": ["x"]},
    ]});
    check(
        kinds,
        &[
            r#"{"kind":"a"}"#,
            r#"{"kind":"b","x":"s"}"#,
            r#"{"kind":"a","x":1}"#,
        ],
        &[
            "{}",
            r#"{"kind":"c"}"#,
            r#"{"kind":"b"}"#,
            r#"{"kind":"a","x":"s"}"#,
        ],
    );
    let overlapping = json!({"items": {"oneOf": [{"type": "integer"}, {"type": "number"}]}});
    assert_eq!(
        refused(&overlapping),
        ("/items".to_string(), "oneOf".to_string())
    );
    check(
        json!({"type": ["string", "null"], "anyOf": [{"minLength": 2}, {"type": "null"}]}),
        &["\"ab\"", "null"],
        &["\"a\"", "1"],
    );
    check(
        json!({"$ref": "#/$defs/a", "maximum": 3, "$defs": {"a": {"type": "integer", "minimum": 1}}}),
        &["1", "3"],
        &["0", "4"],
    );
    check(
        json!({"type": "string", "nullable": true, "maxLength": 1}),
        &["null", "\"a\""],
        &["\"ab\""],
    );
    check(json!(true), &["1", "[{\"a\":\"b\"}]"], &["x"]);
}
