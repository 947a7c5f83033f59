//! The program from outside: what it prints, and how it ends.

use std::process::{Command, Output};

fn fuzz(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_lockstep-fuzz"));
    program.args(arguments).output().expect("the program runs")
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn targets_are_listed_with_their_laws() {
    let output = fuzz(&["list"]);
    assert!(output.status.success());
    let listed = told(&output);
    for target in lockstep_fuzz::targets::TARGETS {
        let line = listed.lines().find(|line| line.starts_with(target.name));
        assert!(
            line.is_some_and(|line| line.ends_with(target.law)),
            "{listed}"
        );
    }
}

#[test]
fn a_smoke_run_counts_what_it_ran() {
    let output = fuzz(&["smoke", "--runs", "25", "--json", "tags"]);
    assert!(output.status.success(), "{}", told(&output));
    let counts: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&counts["target"], &counts["made"]),
        (&"tags".into(), &25.into())
    );
    assert!(counts["saved"].as_u64() > Some(9), "{counts}");
    // The same seed, the same inputs.
    let again: serde_json::Value =
        serde_json::from_slice(&fuzz(&["smoke", "--runs", "25", "--json", "tags"]).stdout)
            .expect("JSON");
    assert_eq!(counts["held"], again["held"]);
}

#[test]
fn mistakes_are_told_and_inputs_are_replayed() {
    let unknown = fuzz(&["smoke", "nothing"]);
    assert!(!unknown.status.success());
    assert!(
        told(&unknown).contains("expected one of tags,"),
        "{}",
        told(&unknown)
    );
    let missing = fuzz(&["run", "tags", "no/such/file"]);
    assert!(!missing.status.success());
    assert!(
        told(&missing).contains("no/such/file"),
        "{}",
        told(&missing)
    );
    let input = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/tags/plain");
    let replayed = fuzz(&["run", "tags", input]);
    assert!(replayed.status.success());
    assert!(
        told(&replayed).contains("plain: the law holds"),
        "{}",
        told(&replayed)
    );
    let help = told(&fuzz(&["--help"]));
    assert!(help.contains("Examples:"), "{help}");
}
