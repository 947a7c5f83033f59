//! Tests of the Hermes JSON format by example.

use crate::event::TagErrorKind::{
    ArgumentsNotObject, MalformedCall, MalformedJson, UnknownTool, UnterminatedToolCall,
};
use crate::format::TagFormat;
use crate::outcome::{Examples, options};
use crate::{Delivery, Ended, TagEvent, TagParser};
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

const HERMES: Examples = Examples(TagFormat::HermesJson);

fn call(object: &str) -> String {
    format!("<tool_call>\n{object}\n</tool_call>")
}

#[test]
fn shapes_of_the_object() {
    for (object, read) in [
        (r#"{"name": "go", "arguments": {}}"#, "go {}"),
        (r#"{"name":"go"}"#, "go {}"),
        (r#"{"id": 7, "name": "go", "type": ["x", {}]}"#, "go {}"),
        (
            r#"{"arguments": {"a": [1, 2.50]}, "name": "go"}"#,
            r#"go {"a":[1,2.50]}"#,
        ),
        (
            r#"{"arguments": "{\"a\": 1}", "name": "go"}"#,
            r#"go {"a":1}"#,
        ),
        (r#"{"name": "go", "arguments": " {} "}"#, "go {}"),
        (r#"{"n\u0061me": "\u0067o", "id": 1.5}"#, "go {}"),
        (
            "{ \"name\" :\n\"go\" , \"arguments\"\t: { \"a\" : 1 } }",
            r#"go {"a":1}"#,
        ),
        (
            r#"{"name": "note", "arguments": {"n": "1", "n": 2}}"#,
            r#"note {"n":2}"#,
        ),
        (
            r#"{"name": "go", "arguments": {"t": "</tool_call><tool_call>{\"}"}}"#,
            r#"go {"t":"</tool_call><tool_call>{\"}"}"#,
        ),
        (
            r#"{"name": "go", "arguments": {"t": "<|im_end|></think>"}}"#,
            r#"go {"t":"<|im_end|></think>"}"#,
        ),
    ] {
        HERMES.check(&call(object), "", &[read]);
        HERMES.check(&format!("<tool_call>{object}"), "", &[read]);
    }
    let two = [call("{\"name\":\"go\"}"), call("{\"name\":\"go\"}")].concat();
    HERMES.check(
        &two.replacen("\n</tool_call>", "", 1),
        "",
        &["go {}", "go {}"],
    );
}

#[test]
fn an_opener_in_prose_is_text() {
    for text in [
        "Use <tool_call> to call.",
        "<tool_call> \n",
        "<tool_call> x {",
        "<tool_call> \"name\"",
        "{\"name\": \"go\"}",
        "{\"name\": \"go\"}</tool_call>",
        "~~~\n<tool_call>{\"name\": \"go\"}</tool_call>",
    ] {
        HERMES.check(text, text, &[]);
    }
    HERMES.check(
        "a<tool_call> <tool_call>{\"name\":\"go\"}</tool_call>b",
        "ab",
        &["go {}"],
    );
}

#[test]
fn errors_say_what_where_and_why() {
    let object = "a JSON object with `name` and `arguments`";
    let keys = "one of the keys `name`, `arguments`, `id`, `type`";
    let end = "`</tool_call>` before the end of the output";
    for (body, kind, wrong, expected) in [
        ("</tool_call>", MalformedCall, "<", object),
        ("[1]", MalformedCall, "[", object),
        ("{'name'", MalformedJson, "'", "a key in double quotes"),
        ("{{", MalformedJson, "{", "a key in double quotes"),
        (
            "{}",
            MalformedCall,
            "}",
            "the key `name` before the end of the object",
        ),
        (
            r#"{"arguments": {}}"#,
            MalformedCall,
            "}",
            "the key `name` before the end of the object",
        ),
        (
            r#"{"name": 7}"#,
            MalformedCall,
            "7",
            "the name of a tool in a string",
        ),
        (r#"{"name": "gone"#, UnterminatedToolCall, "", end),
        (
            r#"{"name": "gone""#,
            UnknownTool,
            "\"gone",
            "one of the offered tools: go, note, pick",
        ),
        (r#"{"parameters": {"#, MalformedCall, "\"par", keys),
        (
            r#"{"name": "go", "name""#,
            MalformedCall,
            "\"name\"",
            "the key `name` only once",
        ),
        (r#"{"name" "go""#, MalformedJson, "\"go", "`:`"),
        (r#"{"name": "go";"#, MalformedJson, ";", "`,` or `}`"),
        (
            r#"{"name": "go",}"#,
            MalformedJson,
            "}",
            "a key in double quotes",
        ),
        (
            r#"{"name": "go", "arguments": [1]}"#,
            ArgumentsNotObject,
            "[1]",
            "an object under `arguments`",
        ),
        (
            r#"{"name": "go", "arguments": 1}"#,
            ArgumentsNotObject,
            "1}",
            "an object under `arguments`",
        ),
        (
            r#"{"name": "go", "arguments": "x"}"#,
            ArgumentsNotObject,
            "\"x",
            "an object under `arguments`",
        ),
        (
            r#"{"name": "go", "arguments": {"a" 1"#,
            MalformedJson,
            "1",
            "`:`",
        ),
        (
            r#"{"name": "go", "arguments": {"a": "\q"#,
            MalformedJson,
            "q",
            "a JSON escape",
        ),
        (
            r#"{"name": "go", "arguments": {"a": 1</tool_call>"#,
            MalformedJson,
            "<",
            "`,` or `}`",
        ),
        (r#"{"name": "go"} x"#, MalformedJson, "x", "`</tool_call>`"),
        (r#"{"name": "go"}}"#, MalformedJson, "}", "`</tool_call>`"),
        (
            r#"{"name": "go"}</tool"#,
            MalformedJson,
            "<",
            "`</tool_call>`",
        ),
        (
            r#"{"name": "go", "arguments": {"a": "</tool_call>"#,
            UnterminatedToolCall,
            "",
            end,
        ),
    ] {
        let text = format!("é<tool_call> {body}");
        HERMES.check_error(&text, kind, wrong, expected, &[]);
    }
    let second = call("{\"name\":\"go\"}") + "<tool_call>[";
    HERMES.check_error(&second, MalformedCall, "[", object, &["go {}"]);
}

#[test]
fn what_the_token_limit_cuts_off() {
    for text in [
        "<tool_call>",
        "<tool_call>{\"na",
        "<tool_call>{\"name\":\"go\"",
        "<tool_call>{<|im",
    ] {
        HERMES.check_cut(&format!("a{text}"), "a", &[], Some(text));
    }
    HERMES.check_cut("<tool_call>{\"name\":\"go\"}\n", "", &["go {}"], None);
    HERMES.check_cut("<tool_call>{\"name\":\"go\"}\n</too", "", &["go {}"], None);
}

#[test]
fn eager_delivery_tells_what_is_certain() {
    let mut parser = TagParser::new(options(TagFormat::HermesJson, false, Delivery::Eager));
    let mut steps: Vec<Vec<TagEvent>> = Vec::new();
    for piece in [
        "<tool_call>{\"arguments\": {\"a\"",
        ": 1",
        "}, \"name\": \"go",
        "\"",
        "}",
        "</tool_call>",
    ] {
        let mut out = Vec::new();
        parser.push(piece, &mut out).unwrap();
        steps.push(out);
    }
    let begin = TagEvent::CallBegin {
        index: 0,
        name: "go".into(),
    };
    let arguments = TagEvent::CallArguments {
        index: 0,
        fragment: "{\"a\": 1}".into(),
    };
    assert_eq!(steps[..3], [vec![], vec![], vec![]]);
    assert_eq!(steps[3], [begin, arguments]);
    assert_eq!(steps[4], []);
    assert_eq!(steps[5], [TagEvent::CallEnd { index: 0 }]);

    let mut parser = TagParser::new(options(TagFormat::HermesJson, false, Delivery::Eager));
    let mut out = Vec::new();
    parser
        .push(
            "<tool_call>{\"name\":\"go\",\"arguments\":{\"a\":\"x",
            &mut out,
        )
        .unwrap();
    parser.push("y\\", &mut out).unwrap();
    let fragment = TagEvent::CallArguments {
        index: 0,
        fragment: "{\"a\":\"xy\\".into(),
    };
    assert_eq!(out[1..], [fragment]);
    assert!(parser.finish(Ended::Length, &mut out).is_ok());
    assert_eq!(out.len(), 2);
}
