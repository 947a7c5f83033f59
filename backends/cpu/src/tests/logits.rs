//! Logits and hidden states against an independent implementation.

use super::{fixture, open};
use crate::check::{CheckError, CheckOptions, Report, check_logits};
use crate::{CpuOptions, Isa, WeightRule};
use lockstep_package::NoProgress;

fn check(name: &str, weights: WeightRule, isa: Isa) -> Report {
    let options = CheckOptions {
        cpu: CpuOptions {
            weights,
            isa: Some(isa),
            ..CpuOptions::default()
        },
        max_abs_bound: None,
        seed: 1,
    };
    let reference = fixture(name).join("reference.safetensors");
    check_logits(&open(name), &reference, &options, &NoProgress).expect("the reference is whole")
}

#[test]
fn f32_agrees_with_the_oracle() {
    for name in ["llama", "llama3_rope", "qwen3", "qwen3_5"] {
        let report = check(name, WeightRule::F32, Isa::detect());
        assert!(report.passed, "{name}: {report:#?}");
        let package = open(name);
        let (num_layers, num_heads) = (package.config.num_layers, usize::from(package.has_mtp()));
        // Two prefills, two decodes, the hidden states of each layer and of the embedding, twice the drafting
        // head's logits.
        let num_arrays = 4 + num_layers + 1 + 2 * num_heads;
        assert_eq!(report.arrays.len(), num_arrays, "{name}");
        assert_eq!(report.greedy.len(), 1);
    }
}

#[test]
fn q8_stays_close_to_the_oracle() {
    for name in ["llama", "llama3_rope", "qwen3", "qwen3_5"] {
        let report = check(name, WeightRule::Q8, Isa::detect());
        assert!(report.passed, "{name}: {report:#?}");
    }
}

#[test]
fn a_bound_that_is_too_tight_fails() {
    let options = CheckOptions {
        cpu: CpuOptions::default(),
        max_abs_bound: Some(1e-9),
        seed: 1,
    };
    let reference = fixture("llama").join("reference.safetensors");
    let report = check_logits(&open("llama"), &reference, &options, &NoProgress);
    assert!(!report.expect("the reference is whole").passed);
}

#[test]
fn a_file_without_logits_is_an_error() {
    let options = CheckOptions {
        cpu: CpuOptions::default(),
        max_abs_bound: None,
        seed: 1,
    };
    let weights = fixture("llama").join("model.safetensors");
    let error = check_logits(&open("llama"), &weights, &options, &NoProgress);
    assert!(
        matches!(error, Err(CheckError::Content { .. })),
        "{error:?}"
    );
}
