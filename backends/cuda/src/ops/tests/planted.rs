//! Faults of real engines, and of our own making, planted in kernels one at a time. Each must be seen by the tests of
//! this folder, in the very form in which they pass without it: a fault that nobody sees is a test that looks away.

use crate::program::program_text;
use std::collections::BTreeSet;
use std::process::Command;

/// A fault: what it is called in the kernels, and the tests of which at least one must fail.
struct Fault {
    name: &'static str,
    tests: &'static str,
}

const fn fault(name: &'static str, tests: &'static str) -> Fault {
    Fault { name, tests }
}

const FAULTS: &[Fault] = &[
    fault("PLANTED_NORM_BARRIER", "rows::"),
    fault("PLANTED_GEMM_BARRIER", "linear::q8"),
    fault("PLANTED_GEMV_BARRIER", "linear::q8"),
    fault("PLANTED_RAGGED_END", "linear::q8"),
    fault("PLANTED_WGMMA_BARRIER", "linear::by_wgmma"),
    fault("PLANTED_WGMMA_FENCE", "linear::by_wgmma"),
    fault("PLANTED_WGMMA_PROXY", "linear::by_wgmma"),
    fault("PLANTED_WGMMA_RAGGED_END", "linear::by_wgmma"),
    fault("PLANTED_WGMMA_STRIDE", "linear::by_wgmma"),
    fault("PLANTED_WGMMA_TREE", "linear::by_wgmma"),
    fault("PLANTED_WGMMA_WAIT", "linear::by_wgmma"),
    fault("PLANTED_CHUNK_TAIL_WRITE", "rows::"),
    fault("PLANTED_HOLES_IN_OUTPUT", "rows::"),
    fault("PLANTED_NAN_PLUS_MINUS_INF", "attention::"),
    fault("PLANTED_PAGE_INDEX_WRAPS", "attention::"),
    fault("PLANTED_PADDING_LEFT_UNWRITTEN", "attention::"),
    fault("PLANTED_PADDING_WRITES_SLOT", "attention::"),
    fault("PLANTED_CONV_GUARD", "delta::"),
    fault("PLANTED_PADDING_IS_ROW_ZERO", "delta::"),
    fault("PLANTED_ROW_ZERO_IS_NONE", "delta::"),
    fault("PLANTED_CONV_SHORT_CHUNK", "delta::"),
    fault("PLANTED_STATE_FROM_ZERO", "delta::"),
    fault("PLANTED_CO_BATCH_CONV", "delta::"),
    fault("PLANTED_CHUNK_TAIL_GATE", "delta::"),
    fault("PLANTED_TOP_K_KEEPS_TIES", "draw::"),
    fault("PLANTED_TOP_P_OF_ALL", "draw::"),
];

#[test]
fn every_planted_fault_is_seen() {
    // A run with a fault comes here as well.
    if std::env::var_os("LOCKSTEP_PLANTED").is_some() || !crate::testing::is_emulated() {
        return;
    }
    let named: BTreeSet<String> = FAULTS.iter().map(|fault| fault.name.to_owned()).collect();
    assert_eq!(named, in_kernels(), "faults here, and in the kernels");
    let program = std::env::current_exe().expect("this program");
    let mut unseen = Vec::new();
    for fault in FAULTS {
        let mut run = Command::new(&program);
        run.arg(format!("ops::tests::{}", fault.tests));
        run.env("LOCKSTEP_PLANTED", fault.name);
        let run = run.output().expect("a run of this program");
        let said = String::from_utf8_lossy(&run.stdout).into_owned()
            + &String::from_utf8_lossy(&run.stderr);
        // Whoever fails before a kernel runs has seen nothing.
        let mut panics = said.lines().filter(|line| line.contains("panicked at"));
        assert!(
            panics.all(|line| !line.contains("/testing.rs:")),
            "{} could not be tried:\n{said}",
            fault.name
        );
        let has_run = said.contains("running ") && !said.contains("running 0 tests");
        assert!(has_run, "no test ran for {}:\n{said}", fault.name);
        if run.status.success() {
            unseen.push(fault.name);
        }
    }
    assert!(unseen.is_empty(), "not seen by any test: {unseen:?}");
}

/// The faults that kernels name.
fn in_kernels() -> BTreeSet<String> {
    let files = crate::program::FILES.iter();
    let texts: Vec<String> = files.map(|(file, _)| program_text(file)).collect();
    let words = texts
        .iter()
        .flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let planted = words.filter(|word| word.starts_with("PLANTED_"));
    planted.map(str::to_owned).collect()
}
