//! The law: what a request gets does not depend on its company, on how its prompt is cut, on how often it
//! loses its blocks, on what was computed before and kept, on threads or on vector width. Random deployments run random requests with random
//! arrivals, and each request must get, byte for byte, what it gets alone in a plain one. It must never
//! compare with anything but `==`.

use lockstep_core::{
    Engine, EngineConfig, Event, EventKind, Pipeline, Request, Speculation, Still, Time, Vocabulary,
};
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
    cell::RefCell,
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
    salt: &'static str,
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
    /// Beyond the three of each sequence.
    num_spare_rows: u32,
    prefix_cache: bool,
    /// Of every so many steps one is not planned while another runs; 0 is none at all.
    overlap: usize,
    /// Depth of guesses from what was written.
    guesses: u32,
    num_threads: usize,
    isa_idx: usize,
}

/// One request at a time, in one chunk, with room for everything and nothing kept, on one thread, by the
/// plainest kernels that are still fast enough.
const PLAIN: Deployment = Deployment {
    max_num_seqs: 1,
    max_num_batched_tokens: 1024,
    chunk_tokens_max: 1024,
    num_blocks: 64,
    num_spare_rows: 0,
    prefix_cache: false,
    overlap: 0,
    guesses: 0,
    num_threads: 1,
    isa_idx: usize::MAX,
};

/// Tokens that many prompts begin with.
fn stem(id: u32, len: usize, vocab_size: u32) -> Vec<u32> {
    let token = |idx: u32| (id * 31 + idx * idx * 7 + idx / 5) % vocab_size;
    (0..len as u32).map(token).collect()
}

/// Any tokens, or a beginning that others share, cut around the end of a block.
fn prompts(vocab_size: u32) -> impl Strategy<Value = Vec<u32>> {
    let shared = (0u32..2, 1usize..4, 0usize..3, 0usize..30).prop_map(
        move |(id, num_blocks, more, tail)| {
            let mut prompt = stem(id, num_blocks * 64 + more - 1, vocab_size);
            prompt.truncate(PROMPT_LEN_MAX - 30);
            prompt.extend(stem(id + 7, tail, vocab_size));
            prompt
        },
    );
    let any = prop::collection::vec(0..vocab_size, 1..PROMPT_LEN_MAX);
    // Several of these fit at first, and not when they have grown.
    let short = prop::collection::vec(0..vocab_size, 44..64);
    prop_oneof![2 => any, 3 => shared, 3 => short]
}

fn wishes(vocab_size: u32) -> impl Strategy<Value = Vec<Wish>> {
    let sampling = (
        prop_oneof![Just(0.0f32), 0.2f32..2.5],
        prop_oneof![Just(1.0f32), 0.3f32..1.0],
        prop_oneof![Just(0u32), 1u32..50],
        prop_oneof![3 => Just(0.0f32), 1 => -1.0f32..1.0],
        prop_oneof![3 => Just(1.0f32), 1 => 0.8f32..1.5],
    );
    let shape = (
        prompts(vocab_size),
        1..=OUTPUT_LEN_MAX,
        any::<u64>(),
        prop::option::weighted(0.3, 0u32..4),
        prop::option::weighted(0.5, 0..vocab_size),
        prop::option::weighted(0.3, "[a-e ]{1,2}"),
        prop_oneof![4 => Just(""), 1 => Just("other")],
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
        salt: shape.6,
        arrival: life.0,
        leaves: life.1,
    });
    prop::collection::vec(wish, 2..6)
}

fn deployments() -> impl Strategy<Value = Deployment> {
    // Four blocks hold the longest sequence; with few more, a crowd must take turns.
    let num_blocks = prop_oneof![2 => Just(4u32), 1 => 5u32..40];
    let kept = (0u32..8, prop::bool::weighted(0.8));
    let ahead = (
        prop_oneof![1 => Just(0usize), 1 => Just(usize::MAX), 1 => 2usize..5],
        prop_oneof![1 => Just(0u32), 2 => 1u32..10],
    );
    (
        (2u32..6, 3u32..200, 1u32..100),
        num_blocks,
        kept,
        ahead,
        (1usize..4, 0usize..3),
    )
        .prop_map(
            |((seqs, batched, chunk), num_blocks, kept, ahead, machine)| Deployment {
                max_num_seqs: seqs,
                max_num_batched_tokens: batched,
                chunk_tokens_max: chunk,
                num_blocks,
                num_spare_rows: kept.0,
                prefix_cache: kept.1,
                overlap: ahead.0,
                guesses: ahead.1,
                num_threads: machine.0,
                isa_idx: machine.1,
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
            speculation: None,
            token_events: true,
            cache_salt: self.salt.into(),
        }
    }
}

/// An engine, its model, and the steps so far.
struct Running<'a, B: Backend> {
    engine: Engine,
    backend: &'a mut B,
    pipeline: Pipeline<B>,
    overlap: usize,
    num_steps: u64,
}

impl<B: Backend> Running<'_, B> {
    fn new<'a>(
        deployment: &Deployment,
        backend: &'a mut B,
        vocabulary: &Arc<Vocabulary>,
    ) -> Running<'a, B> {
        let config = EngineConfig {
            max_num_seqs: deployment.max_num_seqs,
            max_num_batched_tokens: deployment.max_num_batched_tokens,
            chunk_tokens_max: deployment.chunk_tokens_max,
            prefix_cache: deployment.prefix_cache,
            speculation: Speculation {
                suffix: deployment.guesses,
                ngram: deployment.guesses,
                ..Speculation::OFF
            },
            checked: true,
            ..EngineConfig::default()
        };
        let vocabulary = Arc::clone(vocabulary);
        Running {
            engine: Engine::new(config, backend.limits(), vocabulary).expect("fine"),
            backend,
            pipeline: Pipeline::default(),
            overlap: deployment.overlap,
            num_steps: 0,
        }
    }

    /// Runs all wishes to their ends. Returns what came of each.
    fn run(&mut self, wishes: &[Wish], may_leave: bool) -> Vec<Vec<(u32, EventKind)>> {
        let mut ids: BTreeMap<SeqId, usize> = BTreeMap::new();
        let mut events: Vec<Vec<(u32, EventKind)>> = vec![Vec::new(); wishes.len()];
        let mut step = 0;
        loop {
            let now = Time(self.num_steps);
            for (idx, wish) in wishes.iter().enumerate() {
                if wish.arrival == step {
                    let id = self.engine.submit(now, wish.request()).expect("it fits");
                    ids.insert(id, idx);
                }
                if may_leave && wish.leaves == Some(step) {
                    let own = ids.iter().find(|(_, known)| **known == idx);
                    own.map(|(id, _)| self.engine.abort(*id));
                }
            }
            let is_overlapped = self.overlap > 0 && !step.is_multiple_of(self.overlap);
            self.engine.set_overlap(is_overlapped);
            let (engine, backend) = (&mut self.engine, &mut *self.backend);
            let worked = self.pipeline.turn(engine, backend, &mut Still(now));
            let worked = worked.expect("no broken invariant");
            self.engine
                .check_invariants()
                .expect("everything is accounted for");
            for Event { seq, at, mut kind } in self.engine.poll_events() {
                // How much was found is the one number that what ran before may change.
                if let EventKind::Finished(finished) = &mut kind {
                    finished.usage.cached_tokens = 0;
                }
                // When something is scheduled is the one thing that company may change.
                if !matches!(kind, EventKind::Scheduled | EventKind::Preempted) {
                    events[ids[&seq]].push((at, kind));
                }
            }
            step += 1;
            self.num_steps += 1;
            if !worked && wishes.iter().all(|wish| wish.arrival < step) {
                break;
            }
        }
        assert!(!self.engine.has_work());
        let stats = self.engine.stats();
        assert_eq!(stats.num_blocks_free, stats.num_blocks, "blocks come back");
        assert_eq!(stats.num_rows_free, stats.num_rows, "rows come back");
        events
    }
}

/// What a test has seen.
#[derive(Debug, Default)]
struct Seen {
    num_compared: u64,
    num_preemptions: u64,
    num_cached_tokens: u64,
    num_evicted_blocks: u64,
    num_steps_overlapped: u64,
    num_void_parts: u64,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.num_compared += other.num_compared;
        self.num_preemptions += other.num_preemptions;
        self.num_cached_tokens += other.num_cached_tokens;
        self.num_evicted_blocks += other.num_evicted_blocks;
        self.num_steps_overlapped += other.num_steps_overlapped;
        self.num_void_parts += other.num_void_parts;
    }

    /// A law that was never put to the test would hold too.
    fn check(&self) {
        println!("{self:?}");
        assert!(
            self.num_compared > 10,
            "only {} requests compared",
            self.num_compared
        );
        assert!(self.num_preemptions > 0, "no sequence ever lost its blocks");
        assert!(self.num_evicted_blocks > 0, "the cache never gave way");
        assert!(self.num_steps_overlapped > 0, "no step was planned ahead");
        assert!(self.num_void_parts > 0, "no plan ahead was ever void");
    }
}

/// Runs random crowds, twice each, and each of their requests alone.
fn check_law<B: Backend>(
    num_cases: u32,
    vocab_size: u32,
    vocabulary: &Arc<Vocabulary>,
    make: impl Fn(&Deployment) -> B,
) -> Seen {
    let seen = RefCell::new(Seen::default());
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
        let mut crowded = make(&deployment);
        let mut crowded = Running::new(&deployment, &mut crowded, vocabulary);
        // The second time much of it may have been kept.
        let cold = crowded.run(&wishes, true);
        let warm = crowded.run(&wishes, true);
        let totals = crowded.engine.stats().totals;
        seen.borrow_mut().add(Seen {
            num_compared: 0,
            num_preemptions: totals.num_preemptions,
            num_cached_tokens: totals.num_cached_tokens,
            num_evicted_blocks: totals.num_evicted_blocks,
            num_steps_overlapped: totals.num_steps_overlapped,
            num_void_parts: totals.num_void_parts,
        });
        let mut plain = make(&PLAIN);
        for (idx, wish) in wishes.iter().enumerate() {
            if wish.leaves.is_some() {
                continue;
            }
            let wish = Wish {
                arrival: 0,
                ..wish.clone()
            };
            let alone = Running::new(&PLAIN, &mut plain, vocabulary).run(&[wish], false);
            prop_assert_eq!(&cold[idx], &alone[0], "request {}", idx);
            prop_assert_eq!(&warm[idx], &alone[0], "request {}, again", idx);
            seen.borrow_mut().num_compared += 2;
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    assert!(seen.num_cached_tokens > 0, "nothing was ever found again");
    seen
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
            num_rows: 3 * deployment.max_num_seqs + deployment.num_spare_rows,
            query_tokens_max: deployment.max_num_batched_tokens,
            seq_len_max: Some(256),
            ..CpuOptions::default()
        };
        CpuBackend::load(package, &options, &NoProgress).expect("the model loads")
    })
}

/// Long prompts around the ends of blocks, up to 600 tokens, one after the other: each from its first token,
/// and from what the others left.
fn check_long_prompts(package: &Package, weights: WeightRule, num_blocks: &[usize]) {
    let vocab_size = package.config.vocab_size as u32;
    let vocabulary = letters(vocab_size);
    let options = CpuOptions {
        weights,
        num_threads: 1,
        isa: Isa::available().last().copied(),
        num_blocks: 64,
        num_rows: 32,
        query_tokens_max: 1024,
        seq_len_max: Some(640),
        ..CpuOptions::default()
    };
    let load = || CpuBackend::load(package, &options, &NoProgress).expect("the model loads");
    let (mut plain_backend, mut backend) = (load(), load());
    let keeping = Deployment {
        prefix_cache: true,
        ..PLAIN
    };
    let mut plain = Running::new(&PLAIN, &mut plain_backend, &vocabulary);
    let mut kept = Running::new(&keeping, &mut backend, &vocabulary);
    let around = num_blocks
        .iter()
        .flat_map(|num| num * 64 - 1..=num * 64 + 1);
    // Some fixtures are made for short sequences.
    let len_max = plain.engine.seq_len_max() as usize - 4;
    let mut lengths: Vec<usize> = around.chain([600]).filter(|len| *len <= len_max).collect();
    lengths.extend(lengths.clone().iter().rev());
    for (idx, &len) in lengths.iter().enumerate() {
        let wish = Wish {
            prompt: stem(3, len, vocab_size),
            salt: "",
            max_tokens: 4,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            seed: idx as u64,
            logprobs: Some(2),
            end_token: None,
            stop: None,
            arrival: 0,
            leaves: None,
        };
        let wishes = [wish];
        let (expected, got) = (plain.run(&wishes, false), kept.run(&wishes, false));
        assert_eq!(got, expected, "{len} tokens");
    }
    let totals = kept.engine.stats().totals;
    assert!(2 * totals.num_cached_tokens > totals.num_looked_up_tokens);
}

#[test]
fn real_models_keep_the_law() {
    let mut seen = Seen::default();
    for name in ["llama", "llama3_rope", "qwen3", "qwen3_5"] {
        let folder = root().join("tests/fixtures/models").join(name);
        let package = Package::open(&folder, &NoProgress).expect("a fixture");
        seen.add(check_model(&package, WeightRule::F32, 10));
        seen.add(check_model(&package, WeightRule::Q8, 10));
        check_long_prompts(&package, WeightRule::F32, &[1, 2, 5, 9]);
        check_long_prompts(&package, WeightRule::Q8, &[1, 2, 5, 9]);
    }
    seen.check();
}

#[test]
fn the_embedded_model_keeps_the_law() {
    let package = Package::embedded().expect("the embedded model");
    let mut seen = check_model(&package, WeightRule::F32, 3);
    seen.add(check_model(&package, WeightRule::Q8, 6));
    seen.check();
    check_long_prompts(&package, WeightRule::Q8, &[1, 4]);
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
