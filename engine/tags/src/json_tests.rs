//! Tests of strict JSON, against an independent reader where one exists.

use super::*;
use alloc::format;
use alloc::string::ToString;
use proptest::prelude::*;
extern crate std;

#[test]
fn strict_json_only() {
    for bad in [
        "",
        " ",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "-",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "+1",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{\"a\" 1}",
        "\"\u{1}\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\"a",
        "{{}}",
        "1 2",
        "[",
        "{",
        "// c\n1",
        "\u{a0}1",
    ] {
        assert!(parse(bad, DEPTH_MAX).is_err(), "{bad:?} was read as JSON");
        assert!(
            serde_json::from_str::<serde_json::Value>(bad).is_err(),
            "{bad:?}"
        );
    }
}

#[test]
fn numbers_keep_their_digits() {
    let text = "[123456789012345678901234567890,-0.10,1e-7,1E+400]";
    assert_eq!(parse(text, DEPTH_MAX).unwrap().to_string(), text);
}

#[test]
fn numbers_compare_by_value_and_to_the_last_digit() {
    let same = |a: &str, b: &str| parse(a, 1).unwrap().same(&parse(b, 1).unwrap());
    assert!(same("3", "3.0") && same("-350", "-3.5e2") && same("0", "-0.0"));
    assert!(same("100", "1e2") && same("0.01", "1E-2"));
    assert!(!same("9007199254740993", "9007199254740992"));
    assert!(!same("1", "true") && !same("1", "-1") && !same("1", "10"));
    assert!(!same("0", "false") && !same("1", "\"1\""));
}

#[test]
fn depth_is_limited_and_counted_exactly() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(parse(&nested(128), 128).is_ok());
    let error = parse(&nested(129), 128).unwrap_err();
    assert_eq!(
        (error.offset, error.expected),
        (128, "fewer nested arrays and objects")
    );
    assert!(parse("[[],[],[[]]]", 3).is_ok());
}

#[test]
fn the_last_of_a_repeated_key_stands() {
    let value = parse(r#"{"a":1,"b":2,"a":3}"#, 4).unwrap();
    assert_eq!(value.to_string(), r#"{"a":3,"b":2}"#);
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<String>().prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::vec((any::<String>(), inner), 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

proptest! {
    #[test]
    fn an_independent_reader_agrees(value in any_json(), pretty in any::<bool>()) {
        let text = if pretty {
            serde_json::to_string_pretty(&value).unwrap()
        } else {
            serde_json::to_string(&value).unwrap()
        };
        let ours = parse(&text, DEPTH_MAX).unwrap();
        let back: serde_json::Value = serde_json::from_str(&ours.to_string()).unwrap();
        prop_assert_eq!(&back, &value);
        prop_assert!(parse(&ours.to_string(), DEPTH_MAX).unwrap() == ours);
    }

    #[test]
    fn what_is_json_is_agreed(text in "[\\[\\]{}\":,\\\\ud8-9eE+.0tnrulase -]{0,12}") {
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        // Numbers past the range of a double are JSON, though the other reader refuses them.
        let range = matches!(&theirs, Err(e) if e.to_string().contains("out of range"));
        prop_assert!(range || parse(&text, DEPTH_MAX).is_ok() == theirs.is_ok());
    }
}
