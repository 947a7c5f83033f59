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
fn settings_change_nothing_and_another_model_is_seen_by_its_logits_first() {
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
        // Hashes in place of the model.
        &["--backend", "fingerprint"],
    ];
    for (folder, flags) in folders.iter().zip(flags) {
        incidents(folder.path(), flags, 4);
    }
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
}

#[test]
fn one_request_of_a_recording_is_held_against_the_same_one_of_another() {
    let folders = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let flags: [&[&str]; 2] = [
        &["--backend", "fingerprint"],
        &["--backend", "fingerprint", "--speculate", "off"],
    ];
    let files: Vec<Vec<PathBuf>> = folders
        .iter()
        .zip(flags)
        .map(|(folder, flags)| incidents(folder.path(), flags, 3))
        .collect();
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

#[test]
fn what_a_defect_comes_with_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = incidents(folder.path(), &["--speculate", "forced:4,suffix:3"], 4);
    let ring = ring(folder.path());
    let by = [
        "num_drafts > 0",
        "prompt_len > 0",
        "not (is_first or is_last) and is_constrained",
    ];
    let mut args = vec!["tabulate", &ring, "--defect", "num_accepted > 0", "--json"];
    by.iter().for_each(|by| args.extend(["--by", by]));
    let report = json(&args);
    let all = &report["all"];
    let tables = report["tables"].as_array().expect("tables");
    assert_eq!(tables.len(), 3);
    for table in tables {
        let sum = |what: &str| {
            let of = |own: &str| table[own][what].as_u64().expect("a count");
            of("holds") + of("otherwise")
        };
        assert_eq!(Some(sum("of")), all["of"].as_u64(), "{table}");
        assert_eq!(Some(sum("defects")), all["defects"].as_u64(), "{table}");
    }
    // Nothing is accepted where nothing was drafted, and every part has a prompt.
    assert_eq!(tables[0]["otherwise"]["defects"], 0);
    assert!(tables[0]["holds"]["defects"].as_u64() > Some(0), "{report}");
    assert!(
        tables[0]["p"].as_f64().expect("a number") < 1e-6,
        "{report}"
    );
    assert_eq!(tables[1]["otherwise"]["of"], 0);
    assert_eq!(tables[1]["p"], 1.0);
    let requests = [
        "--unit",
        "request",
        "--defect",
        "finish = length",
        "--by",
        "is_constrained",
    ];
    let report = json(&[&["tabulate", &ring, "--json"], &requests[..]].concat());
    assert_eq!(report["all"]["of"], 4);

    // One request at a time says the same.
    let files: Vec<&str> = files
        .iter()
        .map(|own| own.to_str().expect("UTF-8"))
        .collect();
    let alone = json(&[&["tabulate", "--json"], &requests[..], &files[..]].concat());
    assert_eq!(alone["tables"], report["tables"]);
    let output = run(&[&["tabulate"], &files[..], &requests[..]].concat());
    let said = stdout(&output);
    assert!(
        said.contains(" of ") && said.contains(" / ") && said.contains("p = "),
        "{said}"
    );
}

#[test]
fn what_can_not_be_counted_is_said_and_ends_with_its_own_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = incidents(folder.path(), &["--backend", "fingerprint"], 1);
    let file = files[0].to_str().expect("UTF-8");
    // The header, and nothing else.
    let bytes = std::fs::read(file).expect("a file");
    let len = u32::from_le_bytes(bytes[18..22].try_into().expect("four bytes")) as usize;
    let empty = folder.path().join("empty.capture");
    std::fs::write(&empty, &bytes[..27 + len]).expect("a file");
    let empty = empty.to_str().expect("UTF-8");
    for (file, defect, code, said) in [
        (
            file,
            "num_draft > 1",
            2,
            "column 1: expected a number or one of the facts",
        ),
        (
            file,
            "num_drafts > (1)",
            2,
            "num_drafts > (1)\n               ^",
        ),
        (file, "logits_differ", 3, "it takes a replay"),
        (file, "num_seqs > 1", 3, "taken out of a longer one"),
        ("Cargo.toml", "is_first", 3, "LOCKSTEPCAPTURE"),
        (empty, "is_first", 5, "nothing to tabulate"),
    ] {
        let output = run(&["tabulate", file, "--defect", defect, "--by", "is_last"]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{defect}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(said),
            "{defect}: {}",
            stderr(&output)
        );
        assert_eq!(stdout(&output), "", "{defect}");
    }
    let output = run(&["tabulate", file, "--defect", "is_first"]);
    assert_eq!(output.status.code(), Some(2));
    let facts = stdout(&run(&["tabulate", "--facts"]));
    assert!(
        facts.contains("previous_num_accepted") && facts.contains("malformed_call"),
        "{facts}"
    );
}
