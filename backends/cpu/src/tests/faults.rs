//! What is not a number is an error that says where, of the sequence that met it and of no other.

use super::replay::{Ask, alone};
use super::{fixture, load};
use crate::{CpuBackend, CpuOptions, LoadError};
use lockstep_package::{NoProgress, Package, PackageError};
use lockstep_step::{
    Backend, BackendError, BlockId, MaskSet, PlanError, PlanRule, Pos, QueryToken, RowPlan,
    SamplingParams, ScoredPosition, SeqError, SeqId, SeqPlan, StepId, StepPlan, TokenId,
};

/// The tiny Llama with one value of its embedding replaced: the first dimension of token 9.
fn spoiled(value: f32) -> (tempfile::TempDir, Package) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let from = fixture("llama");
    std::fs::copy(from.join("config.json"), folder.path().join("config.json")).expect("copied");
    let mut bytes = std::fs::read(from.join("model.safetensors")).expect("read");
    let whole = Package::open(&from, &NoProgress).expect("the fixture is whole");
    let view = whole
        .tensor("model.embed_tokens.weight")
        .expect("the embedding is there");
    let file = whole.weights.files()[0].bytes();
    let at = view.bytes.as_ptr() as usize - file.as_ptr() as usize + 9 * 4 * view.shape[1];
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    std::fs::write(folder.path().join("model.safetensors"), bytes).expect("written");
    let package = Package::open(folder.path(), &NoProgress).expect("headers are untouched");
    (folder, package)
}

fn part(seq: u64, block: u32, tokens: &[u32]) -> SeqPlan {
    SeqPlan {
        seq: SeqId(seq),
        start: Pos(0),
        query: tokens
            .iter()
            .map(|&t| QueryToken::Known(TokenId(t)))
            .collect(),
        num_drafts: 0,
        block_table: vec![BlockId(block)],
        rows: RowPlan::default(),
        scored: vec![ScoredPosition {
            query_idx: tokens.len() as u32 - 1,
            mask: None,
        }],
        sampling: SamplingParams::greedy(),
        counts: Vec::new(),
    }
}

fn plan(seqs: Vec<SeqPlan>) -> StepPlan {
    StepPlan {
        step: StepId(7),
        seqs,
        num_mask_rows: 0,
    }
}

fn run(backend: &mut CpuBackend, seqs: Vec<SeqPlan>) -> Vec<Result<TokenId, SeqError>> {
    let forward = backend
        .forward(&plan(seqs))
        .expect("the plan follows the rules");
    let output = backend
        .sample(forward, &MaskSet::default())
        .expect("there are no masks");
    let seqs = output.seqs.into_iter();
    seqs.map(|seq| seq.draws.map(|draws| draws[0].token))
        .collect()
}

#[test]
fn a_weight_that_is_no_number_is_named_at_load() {
    let (_folder, package) = spoiled(f32::NAN);
    let error = CpuBackend::load(&package, &CpuOptions::default(), &NoProgress);
    match error.err() {
        Some(LoadError::Package(PackageError::Value { tensor, index, .. })) => {
            assert_eq!(
                (tensor.as_str(), index),
                ("model.embed_tokens.weight", 9 * 64)
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_overflow_is_the_error_of_its_own_sequence() {
    let (_folder, package) = spoiled(3e19);
    let mut backend = load(&package, &CpuOptions::default());
    let mates = [
        part(1, 0, &[3, 4, 5]),
        part(2, 1, &[6, 9, 7]),
        part(3, 2, &[8]),
    ];
    let found = run(&mut backend, mates.to_vec());
    assert_eq!(
        found[1],
        Err(SeqError::NotFinite {
            op: "norm".to_string(),
            layer: Some(0),
            pos: Pos(1),
        })
    );
    let mut again = load(&package, &CpuOptions::default());
    for (idx, part) in [(0, &mates[0]), (2, &mates[2])] {
        assert_eq!(found[idx], run(&mut again, vec![part.clone()]).remove(0));
    }
}

#[test]
fn blocks_that_held_nan_serve_the_next_sequence() {
    let (_folder, package) = spoiled(3e19);
    let mut backend = load(&package, &CpuOptions::default());
    assert!(run(&mut backend, vec![part(1, 0, &[9; 40])])[0].is_err());
    let ask = Ask {
        prompt: vec![TokenId(3); 5],
        sampling: SamplingParams::greedy(),
        num_output: 1,
    };
    let mut clean = load(&package, &CpuOptions::default());
    assert_eq!(alone(&mut backend, &ask), alone(&mut clean, &ask));
}

#[test]
fn a_plan_that_breaks_a_rule_is_refused_by_name() {
    let (_folder, package) = spoiled(1.0);
    let mut backend = load(&package, &CpuOptions::default());
    let shared = vec![part(1, 0, &[3]), part(2, 0, &[4])];
    match backend.forward(&plan(shared)).err() {
        Some(BackendError::Refused(PlanError { rule, .. })) => {
            assert_eq!(rule, PlanRule::WrittenBlockShared);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_drawn_token_is_the_one_that_was_drawn() {
    let (_folder, package) = spoiled(1.0);
    let mut backend = load(&package, &CpuOptions::default());
    let drawn = run(&mut backend, vec![part(1, 0, &[3, 4])])
        .remove(0)
        .expect("finite");
    let next = |token| SeqPlan {
        start: Pos(2),
        query: vec![token],
        ..part(1, 0, &[0])
    };
    let known = run(&mut backend, vec![next(QueryToken::Known(drawn))]).remove(0);
    let reference = |step| QueryToken::Drawn {
        step: StepId(step),
        scored_idx: 0,
    };
    // Both plans are step 7, so that the reference has to be made again.
    assert_eq!(run(&mut backend, vec![part(1, 0, &[3, 4])])[0], Ok(drawn));
    assert_eq!(run(&mut backend, vec![next(reference(7))]).remove(0), known);
    let unknown = run(&mut backend, vec![next(reference(6))]).remove(0);
    assert!(matches!(unknown, Err(SeqError::Refused(_))), "{unknown:?}");
}
