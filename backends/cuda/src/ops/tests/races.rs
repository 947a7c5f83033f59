//! The tests of this folder once more, with each access of each thread checked: a race that no order of threads has
//! brought to light is still one.

use std::process::{Command, Output};

/// Runs this folder's tests with the emulation that looks for races.
fn run_checked(tests: &str, planted: Option<&str>) -> Output {
    let program = std::env::current_exe().expect("this program");
    let mut run = Command::new(program);
    run.args([tests, "--skip", "planted", "--skip", "races"]);
    run.env("LOCKSTEP_EMULATION", "race");
    if let Some(fault) = planted {
        run.env("LOCKSTEP_PLANTED", fault);
    }
    run.output().expect("a run of this program")
}

#[test]
fn no_kernel_races_with_itself_and_a_missing_barrier_is_a_race() {
    // Runs that this test or another has started come here as well.
    let is_plain = std::env::var("LOCKSTEP_EMULATION").map_or(true, |mode| mode == "fast");
    if !is_plain || std::env::var_os("LOCKSTEP_PLANTED").is_some() {
        return;
    }
    let run = run_checked("ops::tests::", None);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    assert!(!said.contains("running 0 tests"), "{said}");
    let run = run_checked("ops::tests::rows::rms", Some("PLANTED_NORM_BARRIER"));
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        !run.status.success() && said.contains("EMULATE: race"),
        "{said}"
    );
}
