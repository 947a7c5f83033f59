//! Two recordings of the same requests, by servers that were set otherwise: compared, and counted.

use super::captures::incidents;
use super::{json, run, stderr, stdout};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The folder of the only recording in here.
fn ring(folder: &Path) -> String {
    let ring = std::fs::read_dir(folder.join("ring")).expect("a folder");
    let ring: Vec<PathBuf> = ring.map(|own| own.expect("an entry").path()).collect();
    assert_eq!(ring.len(), 1);
    ring[0].to_str().expect("UTF-8").to_owned()
}

fn stage<'a>(report: &'a Value, name: &str) -> &'a Value {
    let stages = report["stages"].as_array().expect("stages");
    let found = stages.iter().find(|own| own["stage"] == name);
    found.unwrap_or_else(|| panic!("no stage {name} in {report}"))
}

#[test]
fn settings_change_nothing_and_other_weights_change_logits_first() {
    let folders: Vec<_> = (0..3)
        .map(|_| tempfile::tempdir().expect("a folder"))
        .collect();
    let flags: [&[&str]; 3] = [
        &["--speculate", "forced:4,suffix:3"],
        &[
            "--speculate",
            "off",
            "--isa",
            "scalar",
            "--max-num-batched-tokens",
            "64",
        ],
        &["--weights", "q8"],
    ];
    let files: Vec<Vec<PathBuf>> = folders
        .iter()
        .zip(flags)
        .map(|(folder, flags)| incidents(folder.path(), flags, 4))
        .collect();
    let rings: Vec<String> = folders.iter().map(|own| ring(own.path())).collect();

    let report = json(&["compare", &rings[0], &rings[1], "--json"]);
    assert_eq!(report["agrees"], true, "{report}");
    assert_eq!(report["pairs"], 4);
    assert_eq!(report["first"], Value::Null);
    for name in [
        "logits",
        "mask",
        "draw",
        "verify",
        "detokenize",
        "stop",
        "tags",
    ] {
        let found = stage(&report, name);
        assert!(found["compared"].as_u64() > Some(0), "{found}");
        assert_eq!(found["compared"], found["agreeing"], "{found}");
    }
    assert_eq!(stage(&report, "schedule")["compared"], 0);
    assert!(
        !report["settings"].as_array().expect("a list").is_empty(),
        "{report}"
    );

    let output = run(&["compare", &rings[0], &rings[2]]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.contains("first: logits of incident-"), "{said}");
    assert!(said.contains("token 0 of the output"), "{said}");

    // One request of a recording, and another request.
    let of = |run: usize, nth: usize| files[run][nth].to_str().expect("UTF-8");
    let output = run_compare(of(0, 1), of(1, 1));
    assert_eq!(output.0, Some(0), "{}", output.1);
    assert!(
        output
            .1
            .contains("1 pair of sequences, 0 without a partner"),
        "{}",
        output.1
    );
    let output = run_compare(of(0, 1), of(1, 2));
    assert_eq!(output.0, Some(3), "{}", output.1);
    assert!(
        output.1.contains("no two were asked the same"),
        "{}",
        output.1
    );
    let output = run_compare(of(0, 1), "Cargo.toml");
    assert_eq!(output.0, Some(3), "{}", output.1);
    assert!(output.1.contains("LOCKSTEPCAPTURE"), "{}", output.1);
    // What was cut short agrees as far as it goes, and that is no pass.
    let cut = folders[0].path().join("cut.capture");
    let bytes = std::fs::read(of(0, 1)).expect("a file");
    std::fs::write(&cut, &bytes[..bytes.len() - 7]).expect("a file");
    let output = run_compare(cut.to_str().expect("UTF-8"), of(1, 1));
    assert_eq!(output.0, Some(5), "{}", output.1);
    assert!(output.1.contains("cut short at byte"), "{}", output.1);
}

/// The exit code, and what was said.
fn run_compare(a: &str, b: &str) -> (Option<i32>, String) {
    let output = run(&["compare", a, b]);
    let said = format!("{}{}", stdout(&output), stderr(&output));
    (output.status.code(), said)
}
