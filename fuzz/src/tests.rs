//! Every saved input of every target is run by `cargo test`: a crash that was mended stays mended.

use crate::corpus::{Input, corpus, crashes};
use crate::execute::{Execution, execute, tell};
use crate::targets::{TARGETS, Target};

/// An input that no target may fail on, and one that fails.
const PROBE: Target = Target {
    name: "probe",
    law: "no input begins with a bang",
    check: |data| assert!(!data.starts_with(b"!"), "it begins with a bang"),
    dictionary: &[],
    smoke_runs: 0,
};

fn replay(target: &Target, inputs: &[Input]) -> usize {
    let mut num_held = 0;
    for input in inputs {
        match execute(target, &input.bytes) {
            Execution::Held => num_held += 1,
            Execution::NoCase => {}
            Execution::Failed { panics } => panic!("{}", tell(target, &input.path, &panics)),
        }
    }
    num_held
}

#[test]
fn every_saved_input_keeps_the_law_of_its_target() {
    for target in TARGETS {
        let inputs = corpus(target.name).expect("a readable corpus");
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        let num_held = replay(target, &inputs);
        assert!(
            2 * num_held >= inputs.len(),
            "{}: of {} inputs only {num_held} are cases",
            target.name,
            inputs.len()
        );
        replay(target, &crashes(target.name).expect("readable crashes"));
    }
}

#[test]
fn a_failure_is_caught_and_told() {
    assert_eq!(execute(&PROBE, b"?"), Execution::NoCase);
    let Execution::Failed { panics } = execute(&PROBE, b"!") else {
        panic!("it was not noticed");
    };
    assert!(panics[0].contains("it begins with a bang"), "{panics:?}");
    let told = tell(
        &PROBE,
        std::path::Path::new("fuzz/crashes/probe/1"),
        &panics,
    );
    assert!(told.contains("run probe fuzz/crashes/probe/1"), "{told}");
}

#[test]
fn the_table_names_each_target_once_and_no_folder_is_forgotten() {
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    let mut unique = names.clone();
    unique.dedup();
    assert_eq!(names, unique);
    for folder in ["corpus", "crashes"] {
        let path = crate::corpus::home().join(folder);
        for entry in std::fs::read_dir(&path).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let name = name.to_string_lossy().into_owned();
            let known = names.contains(&&*name) || name.starts_with('.');
            assert!(known, "fuzz/{folder}/{name} belongs to no target");
        }
    }
}
