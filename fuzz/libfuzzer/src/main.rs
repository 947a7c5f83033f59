//! Runs one fuzz target under libFuzzer: the one that `LOCKSTEP_FUZZ_TARGET` names. It must never know what
//! a target does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lockstep_fuzz::targets::{Target, find};
use std::sync::OnceLock;

static TARGET: OnceLock<&'static Target> = OnceLock::new();

fn chosen() -> &'static Target {
    let name = std::env::var("LOCKSTEP_FUZZ_TARGET").unwrap_or_default();
    find(&name).unwrap_or_else(|| panic!("LOCKSTEP_FUZZ_TARGET={name:?} names no target"))
}

fuzz_target!(|data: &[u8]| {
    (TARGET.get_or_init(chosen).check)(data);
});
