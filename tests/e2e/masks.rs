//! Answers held to a form from the command line, and `lockstep masks`, which shows what a form allows.

use super::{json, run, stderr, stdout};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A file in a folder of its own.
fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path: PathBuf = folder.path().join(name);
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("a path").to_owned()
}

fn alarm() -> Value {
    json!({
        "type": "object",
        "properties": {
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
            "day": {"type": "string", "enum": ["monday", "sunday"]},
        },
        "required": ["hour", "day"],
        "additionalProperties": false,
    })
}

fn request() -> Value {
    json!({
        "model": "whatever",
        "messages": [{"role": "user", "content": "wake me"}],
        "chat_template_kwargs": {"enable_thinking": false},
        "tools": [{"type": "function", "function": {"name": "set_alarm", "parameters": alarm()}}],
        "tool_choice": "required",
    })
}

#[test]
fn masks_show_what_is_allowed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder, "request.json", &request().to_string());
    let opened = json(&[
        "masks",
        "--request",
        &path,
        "--json",
        "--prefix",
        "<tool_call>",
    ]);
    assert_eq!(opened["constraint"], json!(["calls"]));
    assert_eq!(opened["may_end"], false);
    assert_eq!(opened["prefix_tokens"].as_array().map(Vec::len), Some(1));
    // The forced text is allowed, and what is forced comes next.
    let forced = opened["forced"]["text"].as_str().expect("text");
    assert!(
        !forced.is_empty() && "set_alarm".starts_with(forced),
        "{forced}"
    );
    // A number is all that may stand in the value.
    let begun = "<tool_call>set_alarm<arg_key>hour</arg_key><arg_value>";
    let value = [
        "masks",
        "--request",
        &path,
        "--limit",
        "9999",
        "--prefix",
        begun,
    ];
    let shown = json(&[&value[..], &["--json"]].concat());
    let allowed = shown["allowed"].as_array().expect("allowed");
    assert_eq!(shown["num_allowed"], allowed.len());
    assert!((2..200).contains(&allowed.len()), "{shown}");
    let digit = |token: &Value| {
        token["text"]
            .as_str()
            .is_some_and(|text| text.trim() == "7")
    };
    assert!(allowed.iter().any(digit), "{shown}");
    let text = stdout(&run(&[&value[..], &["--explain"]].concat()));
    for word in ["constraint", "may end", "forced", "grammar", "set_alarm"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn masks_end_with_a_code_that_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = file(&folder, "request.json", &request().to_string());
    let mut refused = request();
    refused["tools"][0]["function"]["parameters"] = json!({"type": "unicorn"});
    let refused = file(&folder, "refused.json", &refused.to_string());
    let broken = file(&folder, "broken.json", "{");
    let cases: [(&[&str], i32, &str); 5] = [
        (
            &["--request", &path, "--prefix", "<tool_call>other"],
            1,
            "is not allowed after",
        ),
        (
            &["--request", &path, "--prefix-tokens", "99999999"],
            2,
            "99999999",
        ),
        (&["--request", &refused], 3, "unicorn"),
        (&["--request", &broken], 3, "broken.json"),
        (&["--request", "/no/such/file"], 3, "/no/such/file"),
    ];
    for (flags, code, word) in cases {
        let output = run(&[&["masks"][..], flags].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {text}");
        assert!(text.contains(word), "{flags:?}: {text}");
    }
    let free = json!({"messages": [{"role": "user", "content": "hello"}]});
    let free = file(&folder, "free.json", &free.to_string());
    let shown = json(&["masks", "--request", &free, "--json"]);
    assert_eq!(
        (&shown["constraint"], &shown["may_end"]),
        (&json!([]), &json!(true))
    );
}

#[test]
fn answers_have_the_form_that_flags_ask_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = file(&folder, "schema.json", &alarm().to_string());
    let lark = file(
        &folder,
        "answer.lark",
        "start: \"at \" (\"noon\" | \"night\")",
    );
    let tool = json!([{"type": "function", "function": {
        "name": "set_alarm", "parameters": alarm(), "strict": true,
    }}]);
    let tools = file(&folder, "tools.json", &tool.to_string());
    let answer = |flags: &[&str]| {
        let usual = [
            "generate",
            "wake me",
            "--json",
            "--seed",
            "3",
            "--temperature",
            "0.7",
        ];
        let answer = json(&[&usual[..], &["--max-tokens", "400"], flags].concat());
        assert_ne!(answer["finish"]["reason"], "error", "{answer}");
        answer
    };
    let off = ["--chat", "--template-arg", "enable_thinking=false"];
    for flags in [&off[..], &[]] {
        let text = |form: [&str; 2]| {
            let answer = answer(&[flags, &form[..]].concat());
            answer["content"].as_str().expect("text").trim().to_owned()
        };
        let json: Value = serde_json::from_str(&text(["--json-schema", &schema])).expect("JSON");
        assert!(
            json["hour"]
                .as_i64()
                .is_some_and(|hour| (0..24).contains(&hour)),
            "{json}"
        );
        assert!(["at noon", "at night"].contains(&text(["--grammar", &lark]).as_str()));
        assert_eq!(text(["--choice", "only this"]), "only this");
        assert_eq!(text(["--regex", "[0-9]{4}"]).len(), 4);
    }
    let strict = answer(&[&off[..], &["--tools", &tools]].concat());
    for call in strict["tool_calls"].as_array().expect("calls") {
        assert!(call["arguments"]["hour"].is_i64(), "{call}");
    }
    let both = run(&["generate", "x", "--regex", "a", "--choice", "b"]);
    assert_eq!(both.status.code(), Some(2));
    let bad = run(&["generate", "x", "--regex", "("]);
    assert_eq!(bad.status.code(), Some(3), "{}", stderr(&bad));
}
