//! `lockstep generate`: the same bytes in every process, with every setting that may not matter.

use super::{json, run, run_with_input, stderr, stdout};
use serde_json::Value;

const PROMPT: &str = "What is the capital of Peru?";

fn answer(flags: &[&str]) -> Value {
    let mut args = vec![
        "generate",
        "--json",
        "--digests",
        "--max-tokens",
        "60",
        PROMPT,
    ];
    args.extend(flags);
    json(&args)
}

/// What must be equal: everything but the words about how it was computed.
fn outcome(answer: &Value) -> (Value, Value, Value, Value) {
    let field = |name: &str| answer[name].clone();
    (
        field("token_ids"),
        field("digests"),
        field("content"),
        field("usage"),
    )
}

#[test]
fn two_processes_agree() {
    for weights in ["f32", "q8"] {
        let sampled = ["--seed", "7", "--temperature", "1.5", "--top-p", "0.95"];
        for sampling in [&["--temperature", "0"][..], &sampled] {
            let mut flags = vec!["--chat", "--weights", weights];
            flags.extend(sampling);
            let first = answer(&flags);
            let num_tokens = first["token_ids"].as_array().map_or(0, Vec::len);
            assert!(num_tokens > 5, "{flags:?}: {num_tokens} tokens");
            assert_eq!(first["digests"].as_array().map(Vec::len), Some(num_tokens));
            assert_eq!(outcome(&first), outcome(&answer(&flags)), "{flags:?}");
        }
    }
}

#[test]
fn settings_do_not_matter() {
    let usual = ["--chat", "--seed", "3", "--temperature", "1"];
    let wanted = outcome(&answer(&usual));
    let settings: [&[&str]; 6] = [
        &["--threads", "1"],
        &["--threads", "3"],
        &["--isa", "scalar"],
        &["--max-num-batched-tokens", "5"],
        &["--kv-blocks", "4"],
        &["--checked"],
    ];
    for setting in settings {
        let flags = [&usual[..], setting].concat();
        assert_eq!(outcome(&answer(&flags)), wanted, "{setting:?}");
    }
}

#[test]
fn seeds_matter() {
    let with = |seed| {
        let flags = ["--chat", "--temperature", "3", "--seed", seed];
        answer(&flags)["token_ids"].clone()
    };
    assert_ne!(with("1"), with("2"));
}

#[test]
fn a_drawn_seed_repeats_the_answer() {
    let flags = ["--chat", "--temperature", "2"];
    let drawn = answer(&flags);
    let seed = drawn["seed"].as_u64().expect("a seed").to_string();
    let again = answer(&[&flags[..], &["--seed", &seed]].concat());
    assert_eq!(outcome(&again), outcome(&drawn));
}

#[test]
fn the_embedded_model_knows_a_capital() {
    let answer = answer(&["--chat", "--temperature", "0"]);
    assert!(
        answer["content"]
            .as_str()
            .is_some_and(|text| text.contains("Lima")),
        "{answer}"
    );
    assert_eq!(answer["finish"]["reason"], "stop");
    assert!(
        answer["reasoning"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    );
}

#[test]
fn prompts_come_from_three_places() {
    let flags = ["generate", "--temperature", "0", "--max-tokens", "5"];
    let by_argument = run(&[&flags[..], &["The capital"]].concat());
    assert!(by_argument.status.success(), "{}", stderr(&by_argument));
    assert!(!by_argument.stdout.is_empty());
    let by_pipe = run_with_input(&flags, b"The capital\n");
    assert_eq!(stdout(&by_pipe), stdout(&by_argument));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prompt.txt");
    std::fs::write(&path, "The capital").expect("written");
    let by_file = run(&[&flags[..], &["--file", path.to_str().expect("UTF-8")]].concat());
    assert_eq!(stdout(&by_file), stdout(&by_argument));
}

#[test]
fn tools_are_called() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tools.json");
    let tools = r#"[{"type":"function","function":{"name":"set_alarm","description":"Set an alarm",
        "parameters":{"type":"object","properties":{"time":{"type":"string"},"name":{"type":"string"}},
        "required":["time"]}}}]"#;
    std::fs::write(&path, tools).expect("written");
    let path = path.to_str().expect("UTF-8");
    let flags = [
        "generate",
        "--chat",
        "--json",
        "--temperature",
        "0",
        // With reasoning the small model wavers between this call and a refusal.
        "--template-arg",
        "enable_thinking=false",
        "--tools",
        path,
    ];
    let answer = json(&[&flags[..], &["set my alarm to 12:15"]].concat());
    assert_eq!(answer["finish"]["reason"], "tool_calls", "{answer}");
    assert_eq!(answer["tool_calls"][0]["name"], "set_alarm", "{answer}");
    assert_eq!(
        answer["tool_calls"][0]["arguments"]["time"], "12:15",
        "{answer}"
    );
}

#[test]
fn stop_strings_cut() {
    let whole = answer(&["--chat", "--temperature", "0"]);
    let content = whole["content"].as_str().expect("content").to_owned();
    let stop = content.split(' ').nth(1).expect("two words").to_owned();
    let cut = answer(&["--chat", "--temperature", "0", "--stop", &stop]);
    let before = content.split(&stop).next().expect("a part before");
    assert_eq!(cut["content"], before);
    assert_eq!(cut["finish"]["reason"], "stop");
    assert_eq!(cut["finish"]["string"], stop);
}

#[test]
fn fingerprint_needs_no_weights() {
    let flags = [
        "--backend",
        "fingerprint",
        "--seed",
        "1",
        "--temperature",
        "1",
    ];
    assert_eq!(outcome(&answer(&flags)), outcome(&answer(&flags)));
}
