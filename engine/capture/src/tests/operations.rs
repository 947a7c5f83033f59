//! Captures of real layers, with digests of what their operations computed: the first that differs is named, and where
//! none were recorded, plans are computed again on what is suspected.

use super::{header, vocabulary_of};
use crate::{
    Buffer, Capture, Recorder, Redaction, ReplayError, Replayed, Stage, Witness, narrow, replay,
    watched, write_header,
};
use lockstep_core::{
    Engine, EngineConfig, Pipeline, Request, Speculation, Still, Time, Vocabulary,
};
use lockstep_cpu::{CpuBackend, CpuOptions, WeightRule};
use lockstep_fingerprint::{Fingerprint, FingerprintConfig};
use lockstep_package::{NoProgress, Package};
use lockstep_step::{Backend, Digest, SamplingParams, TokenId};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};
use std::path::PathBuf;
use std::sync::Arc;

const VOCAB_SIZE: u32 = 256;

fn backend(weights: WeightRule) -> CpuBackend {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/models")
        .join("qwen3_5");
    let package = Package::open(&folder, &NoProgress).expect("the fixture is whole");
    let options = CpuOptions {
        weights,
        num_blocks: 24,
        num_rows: 48,
        query_tokens_max: 128,
        seq_len_max: Some(320),
        ..CpuOptions::default()
    };
    CpuBackend::load(&package, &options, &NoProgress).expect("the fixture loads")
}

fn words() -> Arc<Vocabulary> {
    vocabulary_of(VOCAB_SIZE)
}

fn request(idx: u32) -> Request {
    Request {
        prompt: (0..20 + 30 * idx)
            .map(|at| TokenId((at * 7 + idx) % 50))
            .collect(),
        sampling: SamplingParams {
            temperature: [0.0, 0.7][idx as usize % 2],
            seed: u64::from(idx),
            ..SamplingParams::greedy()
        },
        max_tokens: 8 + idx,
        end_tokens: vec![],
        stop_strings: vec![],
        tags: ParserOptions {
            format: TagFormat::Plain,
            starts_in_reasoning: false,
            reasoning: false,
            delivery: Delivery::Eager,
            tools: ToolSet::default().into(),
        },
        matcher: None,
        reasoning: None,
        speculation: None,
        token_events: true,
        cache_salt: String::new(),
    }
}

/// Three requests at once, planned ahead, in chunks, with drafts that are mostly wrong.
fn recorded<B: Backend>(backend: B, is_watched: bool, redaction: Redaction) -> Capture {
    let buffer = Buffer::default();
    let mut recorder = Recorder::new(Arc::new(buffer.clone()), redaction, 5);
    let options = super::Options {
        redaction,
        ..super::Options::default()
    };
    let limits = backend.limits();
    let config = EngineConfig {
        max_num_seqs: 3,
        max_num_batched_tokens: 64,
        chunk_tokens_max: 25,
        speculation: "suffix:4,ngram:3".parse::<Speculation>().expect("drafters"),
        overlap: true,
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(config, limits, words()).expect("limits");
    let mut backend = recorder.around(backend);
    assert_eq!(backend.watch_ops(is_watched), is_watched);
    for idx in 0..3 {
        let request = request(idx);
        recorder.submitting(&format!("request-{idx}"), 0, &request);
        let submitted = engine.submit(Time::default(), request);
        recorder.submitted(submitted.as_ref().copied());
    }
    let mut pipeline = Pipeline::default();
    while pipeline
        .turn(&mut engine, &mut backend, &mut Still::default())
        .expect("no invariant breaks")
    {
        for event in engine.poll_events() {
            recorder.event(&event);
        }
    }
    let mut bytes = Vec::new();
    write_header(&mut bytes, &header(&options, limits)).expect("memory");
    bytes.extend(buffer.bytes());
    let capture = Capture::of_bytes(&bytes).expect("a capture");
    assert_eq!(capture.oddities, Vec::<String>::new());
    capture
}

fn witness(weights: WeightRule) -> Witness<'static, CpuBackend> {
    Witness {
        backend: backend(weights),
        vocabulary: words(),
        matcher: &|_| Ok(None),
        response: &|_, _| None,
        num_seqs: 2,
        progress: &|_, _| {},
    }
}

fn near(replayed: &Replayed) -> Option<&str> {
    let (stage, first) = replayed.verdict.guilty()?;
    assert_eq!(stage, Stage::Logits);
    first.near.as_deref()
}

#[test]
fn operations_that_agree_are_compared_and_change_nothing() {
    let with = recorded(backend(WeightRule::Q8), true, Redaction::None);
    let without = recorded(backend(WeightRule::Q8), false, Redaction::None);
    assert!(with.steps.values().all(|step| !step.ops.is_empty()));
    assert!(without.steps.values().all(|step| step.ops.is_empty()));
    let outputs = |own: &Capture| -> Vec<_> {
        let steps = own.steps.values();
        steps
            .map(|step| (step.plan.clone(), step.output.clone()))
            .collect()
    };
    assert_eq!(outputs(&with), outputs(&without));
    assert_eq!(with.events, without.events);
    let replayed = replay(&with, witness(WeightRule::Q8)).expect("it can be replayed");
    assert_eq!(replayed.verdict.guilty(), None);
    assert!(replayed.num_ops > 1000, "{}", replayed.num_ops);
    let narrowed = narrow(&without, backend(WeightRule::Q8), witness(WeightRule::Q8));
    let narrowed = narrowed.expect("it can be computed again");
    assert_eq!(narrowed.verdict.guilty(), None);
    assert_eq!(narrowed.num_ops, replayed.num_ops);
    // What is computed again is what was recorded.
    let again = watched(&without, backend(WeightRule::Q8)).expect("it can be computed again");
    assert_eq!(again, with);
}

#[test]
fn one_digest_that_is_wrong_is_named_by_layer_and_operation() {
    let right = recorded(backend(WeightRule::F32), true, Redaction::None);
    let steps: Vec<_> = right.steps.keys().copied().collect();
    for (turn, at) in [0usize, 7, 24, 55, 91, 132].into_iter().enumerate() {
        let mut capture = right.clone();
        let id = steps[turn % steps.len()];
        let step = capture.steps.get_mut(&id).expect("it is there");
        // Of a prompt or a committed token: what drafts left behind does not count.
        let part = &step.plan.seqs[0];
        let (seq, pos) = (part.seq, part.start.0);
        let own = step.ops.iter_mut();
        let mut own: Vec<_> = own.filter(|op| op.seq == seq && op.pos == pos).collect();
        let num = own.len();
        let op = &mut own[at % num];
        op.digest = Digest(op.digest.0 ^ 1 << turn);
        let name = match op.layer {
            Some(layer) => format!("layer {layer}: {}", op.op),
            None => op.op.clone(),
        };
        let replayed = replay(&capture, witness(WeightRule::F32)).expect("it can be replayed");
        assert_eq!(near(&replayed), Some(name.as_str()));
        let (_, first) = replayed.verdict.guilty().expect("one differs");
        assert_eq!(
            (first.step, first.seq, first.pos),
            (Some(id), seq, Some(pos))
        );
    }
}

#[test]
fn the_first_product_that_is_computed_by_another_rule_is_named() {
    let with = recorded(backend(WeightRule::Q8), true, Redaction::Text);
    let replayed = replay(&with, witness(WeightRule::F32)).expect("it can be replayed");
    assert_eq!(near(&replayed), Some("layer 0: qkvz"));
    let without = recorded(backend(WeightRule::Q8), false, Redaction::None);
    let replayed = replay(&without, witness(WeightRule::F32)).expect("it can be replayed");
    assert_eq!((near(&replayed), replayed.num_ops), (None, 0));
    let narrowed = narrow(&without, backend(WeightRule::Q8), witness(WeightRule::F32));
    let narrowed = narrowed.expect("it can be computed again");
    assert_eq!(near(&narrowed), Some("layer 0: qkvz"));
}

#[test]
fn what_has_no_digests_of_operations_is_said_to_have_none() {
    let capture = recorded(backend(WeightRule::F32), false, Redaction::None);
    let hashes = Fingerprint::new(FingerprintConfig::new(capture.header.limits));
    let narrowed = narrow(&capture, hashes, witness(WeightRule::F32));
    assert_eq!(narrowed.err(), Some(ReplayError::NoOps));
    let blind = recorded(backend(WeightRule::F32), true, Redaction::Tokens);
    assert!(blind.steps.values().all(|step| step.ops.is_empty()));
    let narrowed = narrow(&blind, backend(WeightRule::F32), witness(WeightRule::F32));
    assert!(matches!(narrowed, Err(ReplayError::Failed(_))));
    // A step that is missing: what came after it read what it wrote.
    let mut cut = capture.clone();
    cut.steps.pop_first();
    let narrowed = narrow(&cut, backend(WeightRule::F32), witness(WeightRule::F32));
    let error = narrowed
        .expect_err("a plan reads what nobody wrote")
        .to_string();
    assert!(
        error.contains("can't be computed from its beginning"),
        "{error}"
    );
}
