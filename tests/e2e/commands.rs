//! Every command: help, exit codes, JSON, and errors that say what to do next.

use super::{json, lockstep, root, run, run_with_input, stderr, stdout};
use std::process::Stdio;

#[test]
fn help_has_examples() {
    let help = stdout(&run(&["--help"]));
    let commands = [
        "serve",
        "chat",
        "generate",
        "inspect",
        "bench",
        "parse",
        "masks",
        "check-logits",
        "law",
        "pack",
        "pins",
        "battery",
        "replay",
        "compare",
        "tabulate",
        "bisect",
    ];
    for command in commands {
        assert!(help.contains(command), "{help}");
        let output = run(&[command, "--help"]);
        assert!(output.status.success());
        let text = stdout(&output);
        assert!(text.contains("Examples:"), "{command}: {text}");
        assert!(!text.contains('\x1b'), "{command}: piped help is plain");
    }
}

#[test]
fn exit_codes_mean_something() {
    let cases: [(&[&str], i32, &str); 11] = [
        (&["inspect", "/no/such/folder"], 3, "/no/such/folder"),
        (&["parse", "--cases", "/no/such/file"], 3, "/no/such/file"),
        (&["--no-such-flag"], 2, "unexpected argument"),
        (
            &["generate", "x", "--temperature", "-1"],
            2,
            "--temperature",
        ),
        (&["generate", "x", "--max-tokens", "0"], 2, "max-tokens"),
        (
            &["generate", "x", "--model", "/no/such/folder"],
            3,
            "/no/such/folder",
        ),
        (&["generate", "x", "--model", "nonsense"], 3, "nonsense"),
        (&["generate", "--file", "/no/such/file"], 3, "/no/such/file"),
        (&["generate", "--system", "y", "x"], 2, "--chat"),
        (
            &["generate", "x", "--kv-blocks", "1", "--kv-cache-gib", "2"],
            2,
            "cannot be used with",
        ),
        (&["serve", "--host", "0.0.0.0", "--port", "0"], 2, "API key"),
    ];
    for (args, code, word) in cases {
        let output = run(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(word), "{args:?}: {text}");
        assert!(
            output.stdout.is_empty(),
            "{args:?} prints errors to standard error"
        );
        assert!(!text.contains('\x1b'), "{args:?}: piped errors are plain");
    }
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let mut child = lockstep(&[
        "generate",
        "--chat",
        "What is the capital of Peru?",
        "--json",
    ])
    .stdin(Stdio::null())
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "nobody read the answer");
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn inspect_shows_the_embedded_model() {
    let report = json(&["inspect", "--json"]);
    assert!(report.is_object(), "{report}");
    let text = stdout(&run(&["inspect"]));
    assert!(text.lines().count() > 5 && !text.contains('\x1b'), "{text}");
    assert!(run(&["inspect", "--verify"]).status.success());
}

#[test]
fn bench_prints_speeds() {
    let tiny = [
        "--rounds",
        "1",
        "--prompt-tokens",
        "16",
        "--decode-tokens",
        "4",
        "--no-limits",
    ];
    let fixed = ["bench", "--threads", "1,2", "--batch", "1,2", "--json"];
    let report = json(&[&fixed[..], &tiny].concat());
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{report}");
    for row in rows {
        assert!(
            row["prefill"]["tokens_per_second"]
                .as_f64()
                .is_some_and(|speed| speed > 0.0)
        );
        assert_eq!(row["decode"].as_array().map(Vec::len), Some(2));
        assert!(row["verdict"].is_string());
    }
    let table = stdout(&run(&[&["bench", "--threads", "1"][..], &tiny].concat()));
    assert!(
        table.contains("prefill") && table.contains("decode x8"),
        "{table}"
    );
}

#[test]
fn recorded_calls_parse() {
    let cases = root().join("tests/fixtures/cases/tool_calls.jsonl");
    let cases = cases.to_str().expect("UTF-8");
    let output = run(&["parse", "--cases", cases]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.lines().last(), Some("108 passed, 0 failed"));
}

#[test]
fn an_output_is_parsed_from_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tools.json");
    std::fs::write(&path, r#"[{"function":{"name":"go"}}]"#).expect("written");
    let tools = path.to_str().expect("UTF-8");

    let call = b"a<tool_call>\n<function=go>\n</function>\n</tool_call>";
    let args = ["parse", "--format", "qwen_xml", "--tools", tools];
    let output = run_with_input(&args, call);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("content:   \"a\"\ncall:      go {}\n"),
        "{text}"
    );

    let output = run_with_input(&[&args[..], &["--json"]].concat(), &call[..26]);
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(report["error"]["kind"], "unterminated_tool_call");
    assert_eq!(report["error"]["markup"], "<tool_call>\n<function=go>");

    let output = run_with_input(&["parse", "--format", "qwen_xml"], call);
    assert!(stdout(&output).contains("<function=go>"));
    assert!(stderr(&output).contains("--tools"), "{}", stderr(&output));

    for (args, code, says) in [
        (&["parse"][..], 2, "--cases"),
        (
            &["parse", "--format", "xml"],
            3,
            "expected one of: none glm",
        ),
        (
            &["parse", "--format", "glm", "--tools", "/no/such/tools"],
            3,
            "/no/such/tools",
        ),
        (
            &["parse", "--cases", "x", "--tools", "y"],
            2,
            "cannot be used with",
        ),
        (&["generate", "x", "--tool-format", "xml"], 2, "hermes_json"),
    ] {
        let output = run(args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.contains(says), "{args:?}: {text}");
    }
    let output = run_with_input(&["parse", "--format", "glm"], b"ab\xff");
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("no UTF-8 at byte 2"));
}
