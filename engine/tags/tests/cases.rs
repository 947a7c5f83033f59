//! Runs the recorded cases of the formats that can be parsed, in every cut.

use std::collections::BTreeMap;
use std::path::Path;

use lockstep_tags::cases::parse_cases;
use lockstep_tags::{Ended, TagFormat};

fn case_file() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/cases");
    std::fs::read_to_string(path.join("tool_calls.jsonl"))
        .expect("the fixture is in the repository")
}

#[test]
fn every_case_is_read_as_expected_in_every_cut() {
    let cases = parse_cases(&case_file()).unwrap();
    let mut counts = BTreeMap::new();
    let mut wrong = String::new();
    for case in &cases {
        let format: TagFormat = case.format.parse().unwrap();
        *counts.entry(format.as_str()).or_insert(0) += 1;
        if let Some(mismatch) = case.run(format).first() {
            wrong += &format!(
                "{}, {} ({:?}):\nexpected\n{}\ngot\n{}\n",
                case.id, mismatch.cut, mismatch.delivery, mismatch.expected, mismatch.got
            );
        }
    }
    assert_eq!(wrong, "");
    let expected = [
        ("deepseek_dsml", 2),
        ("deepseek_v3", 1),
        ("deepseek_v31", 2),
        ("glm", 35),
        ("harmony", 5),
        ("hermes_json", 23),
        ("kimi_k2", 4),
        ("minimax_m2", 4),
        ("qwen_xml", 32),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
}

#[test]
fn a_wrong_expectation_is_found_in_every_cut() {
    let mut case = parse_cases(&case_file()).unwrap().swap_remove(0);
    case.expect.content = Some("something else".into());
    case.expect.tool_calls.clear();
    // Whole, two pieces, characters, chunks, prefix: each under both deliveries.
    assert_eq!(case.run(TagFormat::Glm).len(), 10);
}

#[test]
fn bad_lines_are_named() {
    let good = r#"{"id":"a","format":"glm","prompt_tail":"","tools":[],"text":"xy","ended":"eos","expect":{"reasoning":null,"content":"xy","tool_calls":[],"finish":"stop"}}"#;
    let cases = parse_cases(&format!("\n{good}\n")).unwrap();
    assert_eq!((cases.len(), cases[0].ended), (1, Ended::Eos));
    assert!(cases[0].run(TagFormat::Glm).is_empty());

    for (from, to, line_says) in [
        (
            "{\"id\"",
            "{id",
            "line 1: not JSON, at byte 1: expected a key in double quotes",
        ),
        ("\"a\"", "7", "line 1: field `id`: 7, expected a string"),
        (
            "\"ended\"",
            "\"end\"",
            "line 1: field `ended`: missing, expected a string",
        ),
        (
            "\"eos\"",
            "\"stop\"",
            "line 1: field `ended`: `stop`, expected `eos` or `length`",
        ),
        (
            "[],\"text\"",
            "[{}],\"text\"",
            "field `tools[0].function.name`: missing",
        ),
        (
            "\"text\":",
            "\"chunks\":[\"x\"],\"text\":",
            "field `chunks`: do not join to `text`",
        ),
        (
            "\"finish\":\"stop\"",
            "\"finish\":1",
            "line 1: field `expect.finish`: 1, expected",
        ),
        (
            "[],\"finish\"",
            "[{\"name\":\"f\"}],\"finish\"",
            "`expect.tool_calls[0].arguments`",
        ),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good);
        let said = parse_cases(&bad).unwrap_err().to_string();
        assert!(said.contains(line_says), "{said}");
    }
    let twice = parse_cases(&format!("{good}\n{good}"))
        .unwrap_err()
        .to_string();
    assert_eq!(twice, "line 2: field `id`: `a` is used twice");
}
