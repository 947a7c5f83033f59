//! The law: what a request gets does not depend on its company, on how its prompt is cut, on how often it
//! loses its blocks, on threads or on vector width. Random deployments run random requests with random
//! arrivals, and each request must get, byte for byte, what it gets alone in a plain one. It must never
//! compare with anything but `==`.

use lockstep_core::{Engine, EngineConfig, Event, EventKind, Request, Time, Vocabulary, run_step};
use lockstep_cpu::{CpuBackend, CpuOptions, Isa, WeightRule};
use lockstep_fingerprint::{Fingerprint, FingerprintConfig};
use lockstep_package::{NoProgress, Package};
use lockstep_step::{Backend, BackendLimits, SamplingParams, SeqId, TokenId};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use std::{
    cell::Cell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The longest prompt and the longest output: together three and a half blocks.
const PROMPT_LEN_MAX: usize = 190;
const OUTPUT_LEN_MAX: u32 = 28;

/// A request, as numbers.
#[derive(Clone, Debug)]
struct Wish {
    prompt: Vec<u32>,
    max_tokens: u32,
    temperature: f32,
    top_p: f32,
    top_k: u32,
    frequency_penalty: f32,
    repetition_penalty: f32,
    seed: u64,
    logprobs: Option<u32>,
    end_token: Option<u32>,
    stop: Option<String>,
    /// The step before which it arrives.
    arrival: usize,
    /// The step before which its client goes away, in the crowded deployment only.
    leaves: Option<usize>,
}

/// What may not matter.
#[derive(Clone, Debug)]
struct Deployment {
    max_num_seqs: u32,
    max_num_batched_tokens: u32,
    chunk_tokens_max: u32,
    num_blocks: u32,
    num_threads: usize,
    isa_idx: usize,
}

/// One request at a time, in one chunk, with room for everything, on one thread, by the plainest kernels
/// that are still fast enough.
const PLAIN: Deployment = Deployment {
    max_num_seqs: 1,
    max_num_batched_tokens: 512,
    chunk_tokens_max: 512,
    num_blocks: 64,
    num_threads: 1,
    isa_idx: usize::MAX,
};

fn wishes(vocab_size: u32) -> impl Strategy<Value = Vec<Wish>> {
    let sampling = (
        prop_oneof![Just(0.0f32), 0.2f32..2.5],
        prop_oneof![Just(1.0f32), 0.3f32..1.0],
        prop_oneof![Just(0u32), 1u32..50],
        prop_oneof![3 => Just(0.0f32), 1 => -1.0f32..1.0],
        prop_oneof![3 => Just(1.0f32), 1 => 0.8f32..1.5],
    );
    let shape = (
        prop::collection::vec(0..vocab_size, 1..PROMPT_LEN_MAX),
        1..=OUTPUT_LEN_MAX,
        any::<u64>(),
        prop::option::weighted(0.3, 0u32..4),
        prop::option::weighted(0.5, 0..vocab_size),
        prop::option::weighted(0.3, "[a-e ]{1,2}"),
    );
    let life = (0usize..6, prop::option::weighted(0.15, 1usize..30));
    let wish = (sampling, shape, life).prop_map(|(sampling, shape, life)| Wish {
        temperature: sampling.0,
        top_p: sampling.1,
        top_k: sampling.2,
        frequency_penalty: sampling.3,
        repetition_penalty: sampling.4,
        prompt: shape.0,
        max_tokens: shape.1,
        seed: shape.2,
        logprobs: shape.3,
        end_token: shape.4,
        stop: shape.5,
        arrival: life.0,
        leaves: life.1,
    });
    prop::collection::vec(wish, 2..6)
}

fn deployments() -> impl Strategy<Value = Deployment> {
    // Four blocks hold the longest sequence; with few more, a crowd must take turns.
    (2u32..6, 3u32..200, 1u32..100, 4u32..8, 1usize..4, 0usize..3).prop_map(
        |(seqs, batched, chunk, num_blocks, num_threads, isa_idx)| Deployment {
            max_num_seqs: seqs,
            max_num_batched_tokens: batched,
            chunk_tokens_max: chunk,
            num_blocks,
            num_threads,
            isa_idx,
        },
    )
}

impl Wish {
    fn request(&self) -> Request {
        Request {
            prompt: self.prompt.iter().copied().map(TokenId).collect(),
            sampling: SamplingParams {
                temperature: self.temperature,
                top_p: self.top_p,
                top_k: self.top_k,
                frequency_penalty: self.frequency_penalty,
                repetition_penalty: self.repetition_penalty,
                seed: self.seed,
                top_logprobs: self.logprobs,
                ..SamplingParams::greedy()
            },
            max_tokens: self.max_tokens,
            end_tokens: self.end_token.map(TokenId).into_iter().collect(),
            stop_strings: self.stop.iter().cloned().collect(),
            tags: ParserOptions {
                format: TagFormat::Plain,
                starts_in_reasoning: false,
                reasoning: false,
                delivery: Delivery::Eager,
                tools: ToolSet::default().into(),
            },
            matcher: None,
            reasoning: None,
            token_events: true,
        }
    }
}

/// What came of each wish, and how often blocks were lost on the way.
struct Outcome {
    events: Vec<Vec<(u32, EventKind)>>,
    num_preemptions: u64,
}

fn run<B: Backend>(
    wishes: &[Wish],
    deployment: &Deployment,
    backend: &mut B,
    vocabulary: &Arc<Vocabulary>,
    may_leave: bool,
) -> Outcome {
    let config = EngineConfig {
        max_num_seqs: deployment.max_num_seqs,
        max_num_batched_tokens: deployment.max_num_batched_tokens,
        chunk_tokens_max: deployment.chunk_tokens_max,
        checked: true,
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(config, backend.limits(), Arc::clone(vocabulary)).expect("fine");
    let mut ids: BTreeMap<SeqId, usize> = BTreeMap::new();
    let mut events: Vec<Vec<(u32, EventKind)>> = vec![Vec::new(); wishes.len()];
    let mut step = 0;
    loop {
        for (idx, wish) in wishes.iter().enumerate() {
            if wish.arrival == step {
                let id = engine
                    .submit(Time(step as u64), wish.request())
                    .expect("it fits");
                ids.insert(id, idx);
            }
            if may_leave && wish.leaves == Some(step) {
                let own = ids.iter().find(|(_, known)| **known == idx);
                own.map(|(id, _)| engine.abort(*id));
            }
        }
        let worked =
            run_step(&mut engine, backend, Time(step as u64)).expect("no broken invariant");
        engine
            .check_invariants()
            .expect("everything is accounted for");
        for Event { seq, at, kind } in engine.poll_events() {
            // When something is scheduled is the one thing that company may change.
            if !matches!(kind, EventKind::Scheduled | EventKind::Preempted) {
                events[ids[&seq]].push((at, kind));
            }
        }
        step += 1;
        if !worked && wishes.iter().all(|wish| wish.arrival < step) {
            break;
        }
    }
    assert!(!engine.has_work());
    let stats = engine.stats();
    assert_eq!(stats.num_blocks_free, stats.num_blocks, "blocks come back");
    assert_eq!(stats.num_rows_free, stats.num_rows, "rows come back");
    Outcome {
        events,
        num_preemptions: stats.totals.num_preemptions,
    }
}

/// What a test has seen.
#[derive(Default)]
struct Seen {
    num_compared: u64,
    num_preemptions: u64,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.num_compared += other.num_compared;
        self.num_preemptions += other.num_preemptions;
    }

    /// A law that was never put to the test would hold too.
    fn check(&self) {
        assert!(
            self.num_compared > 10,
            "only {} requests compared",
            self.num_compared
        );
        assert!(self.num_preemptions > 0, "no sequence ever lost its blocks");
    }
}

/// Runs random crowds, and each of their requests alone.
fn check_law<B: Backend>(
    num_cases: u32,
    vocab_size: u32,
    vocabulary: &Arc<Vocabulary>,
    make: impl Fn(&Deployment) -> B,
) -> Seen {
    let (num_preemptions, num_compared) = (Cell::new(0), Cell::new(0));
    let config = Config {
        cases: num_cases,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let strategy = (wishes(vocab_size), deployments());
    let result = runner.run(&strategy, |(wishes, deployment)| {
        let crowded = run(
            &wishes,
            &deployment,
            &mut make(&deployment),
            vocabulary,
            true,
        );
        num_preemptions.set(num_preemptions.get() + crowded.num_preemptions);
        let mut plain = make(&PLAIN);
        for (idx, wish) in wishes.iter().enumerate() {
            if wish.leaves.is_some() {
                continue;
            }
            let wish = Wish {
                arrival: 0,
                ..wish.clone()
            };
            let alone = run(&[wish], &PLAIN, &mut plain, vocabulary, false);
            prop_assert_eq!(&crowded.events[idx], &alone.events[0], "request {}", idx);
            num_compared.set(num_compared.get() + 1);
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    Seen {
        num_compared: num_compared.get(),
        num_preemptions: num_preemptions.get(),
    }
}

fn root() -> PathBuf {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
    cli.ancestors()
        .nth(2)
        .expect("two folders below the root")
        .to_path_buf()
}

/// Letters for tokens, so that stop strings have something to find.
fn letters(vocab_size: u32) -> Arc<Vocabulary> {
    let bytes = (0..vocab_size).map(|id| Box::from([b'a' + (id % 26) as u8]));
    Arc::new(Vocabulary::new(bytes.collect(), Vec::new()))
}

fn check_model(package: &Package, weights: WeightRule, num_cases: u32) -> Seen {
    let isas = Isa::available();
    let vocab_size = package.config.vocab_size as u32;
    check_law(num_cases, vocab_size, &letters(vocab_size), |deployment| {
        let options = CpuOptions {
            weights,
            num_threads: deployment.num_threads,
            isa: isas
                .get(deployment.isa_idx)
                .copied()
                .or(isas.last().copied()),
            num_blocks: deployment.num_blocks,
            num_rows: 2 * deployment.max_num_seqs,
            query_tokens_max: deployment.max_num_batched_tokens,
            seq_len_max: Some(256),
        };
        CpuBackend::load(package, &options, &NoProgress).expect("the model loads")
    })
}

#[test]
fn real_models_keep_the_law() {
    let mut seen = Seen::default();
    for name in ["llama", "llama3_rope", "qwen3", "qwen3_5"] {
        let folder = root().join("tests/fixtures/models").join(name);
        let package = Package::open(&folder, &NoProgress).expect("a fixture");
        seen.add(check_model(&package, WeightRule::F32, 10));
        seen.add(check_model(&package, WeightRule::Q8, 10));
    }
    seen.check();
}

#[test]
fn the_embedded_model_keeps_the_law() {
    let package = Package::embedded().expect("the embedded model");
    let mut seen = check_model(&package, WeightRule::F32, 3);
    seen.add(check_model(&package, WeightRule::Q8, 6));
    seen.check();
}

#[test]
fn fingerprint_keeps_the_law() {
    for num_rows in [0, 12] {
        let seen = check_law(150, 500, &letters(500), |deployment| {
            let limits = BackendLimits {
                vocab_size: 500,
                num_blocks: deployment.num_blocks,
                num_rows,
                seq_len_max: 256,
                query_tokens_max: deployment.max_num_batched_tokens,
            };
            Fingerprint::new(FingerprintConfig::new(limits))
        });
        seen.check();
    }
}
