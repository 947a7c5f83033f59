//! `lockstep law` from outside: it finds nothing where nothing is wrong, and does find what is.

use super::{json, lockstep, run, stderr, stdout};
use std::process::Output;

const HASHES: [&str; 4] = ["law", "--reduced", "-m", "fingerprint"];

fn last_line(output: &Output) -> String {
    stdout(output).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn every_pair_holds_on_hashes() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("law.md");
    let old = "before\n<!-- law: begin -->\nstale words\n<!-- law: end -->\nafter\n";
    std::fs::write(&path, old).expect("written");
    let report = ["--report", path.to_str().expect("UTF-8")];
    let output = run(&[&HASHES[..], &report].concat());
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    let last = last_line(&output);
    let num_runs: u32 = last
        .strip_suffix(" runs, 0 mismatches")
        .and_then(|num| num.parse().ok())
        .unwrap_or_else(|| panic!("{last}"));
    assert!(num_runs > 300, "{last}");
    let page = std::fs::read_to_string(&path).expect("it is there");
    assert!(page.starts_with("before\n<!-- law: begin -->\n"), "{page}");
    assert!(page.ends_with("<!-- law: end -->\nafter\n"), "{page}");
    assert!(
        page.contains(&last) && page.contains("| adversarial |"),
        "{page}"
    );
    assert!(
        !page.contains("stale words") && !page.contains("Never tried"),
        "{page}"
    );
}

#[test]
fn threads_and_form_change_no_count() {
    let counts = |threads: &str| json(&[&HASHES[..], &["--json", "--threads", threads]].concat());
    let report = counts("1");
    assert_eq!(report, counts("2"));
    assert_eq!(report["never_tried"], serde_json::json!([]));
    assert!(
        report["pairs"].as_u64().is_some_and(|pairs| pairs > 1000),
        "{report}"
    );
}

#[test]
fn what_is_broken_on_purpose_is_noticed() {
    let faults = [
        "stale-row",
        "short-step",
        "lost-mask",
        "lost-counts",
        "wrong-draw",
    ];
    for fault in faults {
        let sabotage = ["--sabotage", fault];
        let output = run(&[&HASHES[..], &sabotage].concat());
        assert_eq!(output.status.code(), Some(1), "{fault}");
        let last = last_line(&output);
        assert!(
            last.ends_with(" mismatches") && !last.ends_with(" 0 mismatches"),
            "{last}"
        );
        let errors = stderr(&output);
        let again = errors
            .lines()
            .find_map(|line| line.trim().strip_prefix("again: lockstep "));
        let again: Vec<&str> = again.expect("how to run it again").split(' ').collect();
        // The run that was named shows it alone, and without the fault there is none.
        let broken = run(&[&again[..], &sabotage].concat());
        assert_eq!(broken.status.code(), Some(1), "{}", stdout(&broken));
        assert_eq!(last_line(&broken), "1 runs, 1 mismatches");
        let whole = run(&again);
        assert_eq!(whole.status.code(), Some(0), "{}", stdout(&whole));
        assert_eq!(last_line(&whole), "1 runs, 0 mismatches");
    }
}

#[test]
fn what_can_not_be_tried_is_said() {
    for (args, code, word) in [
        (&["law", "--only", "x"][..], 2, "17.3"),
        (&["law", "--reduced", "--only", "9999.0"], 2, "no such run"),
        (&["law", "-m", "/no/such/folder"], 3, "/no/such/folder"),
    ] {
        let output = lockstep(args).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(stderr(&output).contains(word), "{}", stderr(&output));
    }
}
