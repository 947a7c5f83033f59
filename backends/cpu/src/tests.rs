//! Whole models: are logits right, and does nothing but the request decide them?

mod draft;
mod faults;
mod law;
mod logits;
mod replay;
mod speak;
mod static_buffers;
mod watch;

use crate::{CpuBackend, CpuOptions};
use lockstep_package::{NoProgress, Package};
use std::path::PathBuf;

/// The folder of a tiny model.
fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/models")
        .join(name)
}

fn open(name: &str) -> Package {
    Package::open(&fixture(name), &NoProgress).expect("the fixture is whole")
}

fn load(package: &Package, options: &CpuOptions) -> CpuBackend {
    CpuBackend::load(package, options, &NoProgress).expect("the fixture loads")
}
