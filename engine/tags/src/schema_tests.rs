//! Tests of how schemas pick the type of a raw value.

use super::*;
use crate::types::Dialect;
use alloc::format;
use alloc::vec;

fn parameters(schema: &str) -> Parameters {
    Parameters::parse(schema).unwrap_or_else(|problem| panic!("{schema}: {problem}"))
}

/// Reads `raw` as parameter `p` of this schema; definitions come from `$defs`.
fn read(property: &str, raw: &str) -> Option<String> {
    let schema = format!(
        r##"{{"properties":{{"p":{property}}},"$defs":{{
            "int":{{"type":"integer"}},
            "a/b~":{{"type":"boolean"}},
            "loop":{{"$ref":"#/$defs/loop"}},
            "tree":{{"type":"object","properties":{{"p":{{"$ref":"#/$defs/tree"}}}}}}
        }}}}"##
    );
    let admits = parameters(&schema).admits("p", &BTreeMap::new());
    admits
        .read(raw, Dialect::Json)
        .map(|value| value.to_string())
}

#[track_caller]
fn check(property: &str, readings: &[(&str, Option<&str>)]) {
    for (raw, expected) in readings {
        assert_eq!(
            read(property, raw).as_deref(),
            *expected,
            "{property} reads {raw:?}"
        );
    }
}

#[test]
fn single_types() {
    check(
        r#"{"type":"string"}"#,
        &[
            ("7", Some(r#""7""#)),
            (" x\n", Some(r#"" x\n""#)),
            ("null", Some(r#""null""#)),
            ("", Some(r#""""#)),
        ],
    );
    check(
        r#"{"type":"integer"}"#,
        &[
            (" 7\n", Some("7")),
            ("3.0", Some("3.0")),
            ("25e2", Some("25e2")),
            ("2.5", None),
            ("007", None),
            ("seven", None),
            ("\"7\"", None),
            ("true", None),
            ("", None),
            ("null", None),
            (
                "123456789012345678901234567890",
                Some("123456789012345678901234567890"),
            ),
        ],
    );
    check(
        r#"{"type":"number"}"#,
        &[("-2.50", Some("-2.50")), ("7", Some("7")), ("NaN", None)],
    );
    check(
        r#"{"type":"boolean"}"#,
        &[
            ("true", Some("true")),
            ("True", Some("true")),
            ("False ", Some("false")),
            ("TRUE", None),
            ("None", None),
            ("1", None),
            ("\"true\"", None),
        ],
    );
    check(
        r#"{"type":"null"}"#,
        &[
            ("null", Some("null")),
            ("None", Some("null")),
            ("nil", None),
        ],
    );
    check(
        r#"{"type":"array"}"#,
        &[
            ("[1, \"a\"]", Some("[1,\"a\"]")),
            ("[1,]", None),
            ("(1)", None),
            ("['a']", None),
            ("{}", None),
        ],
    );
    check(
        r#"{"type":"object"}"#,
        &[("{\"a\": {}}", Some("{\"a\":{}}")), ("[]", None)],
    );
}

#[test]
fn strings_and_other_types() {
    check(
        r#"{"type":["string","null"]}"#,
        &[
            ("null", Some("null")),
            ("none", Some(r#""none""#)),
            ("None", Some(r#""None""#)),
            (" null ", Some("null")),
            ("7", Some(r#""7""#)),
            ("\"x\"", Some(r#""\"x\"""#)),
        ],
    );
    check(
        r#"{"type":"string","nullable":true}"#,
        &[("null", Some("null")), ("1", Some(r#""1""#))],
    );
    check(
        r#"{"anyOf":[{"type":"string"},{"type":"array"}]}"#,
        &[
            ("[1]", Some("[1]")),
            ("[1", Some(r#""[1""#)),
            ("{}", Some(r#""{}""#)),
        ],
    );
    check(
        r#"{"type":["string","integer"]}"#,
        &[("2.0", Some("2.0")), ("2.5", Some(r#""2.5""#))],
    );
}

#[test]
fn unknown_types() {
    for property in [
        "{}",
        "true",
        r#"{"description":"x"}"#,
        r#"{"type":"any"}"#,
        r##"{"$ref":"#/$defs/loop"}"##,
        r#"{"$ref":"https://example.org/x"}"#,
        r##"{"$ref":"#/$defs/none"}"##,
        r#"{"anyOf":[{"type":"integer"},{}]}"#,
    ] {
        check(
            property,
            &[
                (" 2 ", Some("2")),
                ("x", Some(r#""x""#)),
                ("\"x\"", Some(r#""x""#)),
                ("True", Some(r#""True""#)),
            ],
        );
    }
    let undeclared = parameters("{}").admits("p", &BTreeMap::new());
    assert_eq!(undeclared, Admits::Unknown);
}

#[test]
fn members_count_where_a_type_is_in_doubt() {
    check(
        r#"{"enum":[1,2,"auto"]}"#,
        &[
            ("1", Some("1")),
            ("1.0", Some("1.0")),
            ("3", Some(r#""3""#)),
            ("auto", Some(r#""auto""#)),
        ],
    );
    check(
        r#"{"enum":[1,2]}"#,
        &[("2", Some("2")), ("3", None), ("x", None)],
    );
    check(
        r#"{"type":"integer","enum":[1,"x"]}"#,
        &[("1", Some("1")), ("x", None)],
    );
    check(
        r#"{"const":null}"#,
        &[("null", Some("null")), ("None", Some("null")), ("0", None)],
    );
    check(
        r#"{"enum":["a","b"]}"#,
        &[("c", Some(r#""c""#)), ("1", Some(r#""1""#))],
    );
    check(
        r#"{"enum":[1],"nullable":true}"#,
        &[("null", Some("null")), ("2", None)],
    );
    check(
        r#"{"anyOf":[{"enum":[1,2]},{"type":"boolean"}]}"#,
        &[("true", Some("true")), ("3", None)],
    );
}

#[test]
fn unions_intersections_and_references() {
    check(
        r#"{"oneOf":[{"type":"integer"},{"type":"null"}]}"#,
        &[("5", Some("5")), ("x", None)],
    );
    check(
        r#"{"allOf":[{"type":["integer","string"]},{"type":["integer","null"]}]}"#,
        &[("5", Some("5")), ("null", None), ("x", None)],
    );
    check(
        r#"{"type":"number","anyOf":[{"type":"integer"},{"type":"string"}]}"#,
        &[("5.5", None)],
    );
    check(
        r##"{"$ref":"#/$defs/int"}"##,
        &[("5", Some("5")), ("x", None)],
    );
    check(
        r##"{"$ref":"#/$defs/a~1b~0"}"##,
        &[("true", Some("true")), ("x", None)],
    );
    check(
        r##"{"$ref":"#/$defs/tree"}"##,
        &[("{}", Some("{}")), ("x", None)],
    );
    check(
        r##"{"nullable":true,"allOf":[{"$ref":"#/$defs/int"}]}"##,
        &[("null", Some("null"))],
    );
    check(
        r#"{"type":"string","enum":[1]}"#,
        &[("1", None), ("x", None)],
    );
}

#[test]
fn a_root_union_is_narrowed_by_its_siblings() {
    let schema = parameters(
        r##"{"type":"object","properties":{"kind":{"type":"string"}},"oneOf":[
            {"$ref":"#/$defs/n"},
            {"properties":{"kind":{"enum":["t","u"]},"v":{"type":"string"},
                "w":{"type":"boolean"}}}],
        "$defs":{"n":{"properties":{"kind":{"const":"n"},"v":{"type":"integer"}}}}}"##,
    );
    let read = |name: &str, raw: &str, kind: Option<&str>| {
        let siblings: BTreeMap<&str, &str> = kind.map(|kind| ("kind", kind)).into_iter().collect();
        schema
            .admits(name, &siblings)
            .read(raw, Dialect::Json)
            .map(|value| value.to_string())
    };
    assert_eq!(read("v", "7", Some("n")).as_deref(), Some("7"));
    assert_eq!(read("v", "x", Some("n")), None);
    assert_eq!(read("v", "7", Some("u")).as_deref(), Some("\"7\""));
    assert_eq!(read("v", "7", None).as_deref(), Some("7"));
    assert_eq!(read("v", "x", Some("z")).as_deref(), Some("\"x\""));
    // What only one branch declares keeps its type whatever the others say.
    assert_eq!(read("w", "x", Some("n")), None);
    assert!(schema.is_branching("v") && !schema.is_branching("kind") && !schema.is_branching("w"));
    assert!(schema.declares("v") && schema.declares("kind") && !schema.declares("x"));
}

#[test]
fn bad_declarations_are_refused_by_name() {
    let refuse = |schema: &str, says: &str| {
        let error = ToolSet::new([("f".into(), Some(schema))]).unwrap_err();
        assert_eq!(error.tool, "f");
        assert!(error.problem.contains(says), "{error}");
    };
    refuse("{", "at byte 1: expected a key in double quotes");
    refuse("[]", "no JSON object");
    refuse(
        &format!("{{\"a\":{}1{}}}", "[".repeat(64), "]".repeat(64)),
        "nested",
    );
    refuse(
        &format!("{{\"a\":\"{}\"}}", "x".repeat(SCHEMA_BYTES_MAX)),
        "expected at most 1048576",
    );
    // Twenty definitions, each naming the next one twice, are a million schemas.
    let defs: Vec<String> = (0..20)
        .map(|i| {
            let next = format!("{{\"$ref\":\"#/$defs/d{}\"}}", i + 1);
            format!("\"d{i}\":{{\"allOf\":[{next},{next}]}}")
        })
        .collect();
    let root = "\"properties\":{\"p\":{\"$ref\":\"#/$defs/d0\"}}";
    refuse(
        &format!("{{{root},\"$defs\":{{{}}}}}", defs.join(",")),
        "50000 schema nodes",
    );
    let defs: Vec<String> = (0..70)
        .map(|i| format!("\"d{i}\":{{\"$ref\":\"#/$defs/d{}\"}}", i + 1))
        .collect();
    refuse(
        &format!("{{{root},\"$defs\":{{{},\"d70\":{{}}}}}}", defs.join(",")),
        "64 levels",
    );

    let twice = ToolSet::new([("f".into(), None), ("f".into(), None)]).unwrap_err();
    assert_eq!(
        format!("{twice}"),
        "tool `f`: declared twice, expected each name once"
    );
    let many = (0..=TOOLS_MAX).map(|i| (format!("f{i:04}"), None));
    assert!(
        ToolSet::new(many)
            .unwrap_err()
            .problem
            .contains("at most 4096 tools")
    );
    assert_eq!(ToolSet::new(vec![]).unwrap().names().count(), 0);
}

#[test]
fn long_lists_of_members_are_only_types() {
    let list = |n: usize| {
        let members: Vec<String> = (0..n).map(|i| format!("{i}")).collect();
        format!("{{\"enum\":[{}]}}", members.join(","))
    };
    check(&list(512), &[("511", Some("511")), ("512", None)]);
    check(&list(513), &[("9999", Some("9999")), ("x", None)]);
}
