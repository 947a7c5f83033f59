//! Any sequence of operations on the engine: blocks and rows are conserved after each, and each request gets
//! what it gets alone. The law of `engine/core/src/tests/laws.rs`, with steps that fail besides.

use super::flaky::{Flaky, Phase};
use super::note_held;
use crate::automaton::{Automaton, Hint};
use crate::decode::{between, byte, pick};
use arbitrary::Unstructured;
use lockstep_core::{
    Engine, EngineConfig, Event, EventKind, Finish, Pipeline, ReasoningBudget, RejectedDrafts,
    Request, RequestError, Speculation, Still, Time, Vocabulary, run_to_end,
};
use lockstep_fingerprint::{Drafting, Fingerprint, FingerprintConfig};
use lockstep_step::{BackendLimits, ModelDrafter, SamplingParams, SeqId, TokenId};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

const END: TokenId = TokenId(0);
const THINK_CLOSE: TokenId = TokenId(3);
/// Makes all later logits of its sequence NaN.
const POISON: TokenId = TokenId(47);
const VOCAB_SIZE: u32 = 48;
const SEQ_LEN_MAX: u32 = 160;
/// Operations of one run, and steps until all requests must have ended.
const OPERATIONS_MAX: usize = 96;
const STEPS_MAX: usize = 20_000;

static VOCABULARY: LazyLock<Arc<Vocabulary>> = LazyLock::new(|| {
    let words: [&[u8]; 7] = [
        b"<|end|>",
        b"<|control|>",
        b"<think>",
        b"</think>",
        // Halves of a character, and a byte that is none.
        b"\xe2",
        b"\x82\xac",
        b"\xff",
    ];
    let rest = [&b"a"[..], b"b", b"ab", b"ba", b"<", b" "];
    let bytes = (0..VOCAB_SIZE as usize).map(|idx| match words.get(idx) {
        Some(word) => Box::from(*word),
        None => Box::from(rest[idx % rest.len()]),
    });
    Arc::new(Vocabulary::new(bytes.collect(), vec![true, true]))
});

/// A request as plain data, so that it can be made twice.
#[derive(Clone, Debug)]
struct Spec {
    prompt: Vec<TokenId>,
    max_tokens: u32,
    is_greedy: bool,
    has_penalties: bool,
    ends: bool,
    reasons: bool,
    budget: Option<u32>,
    stops: Vec<String>,
    top_logprobs: Option<u32>,
    seed: u64,
    salt: &'static str,
    matcher: Option<Automaton>,
}

/// A configuration, requests, and operations on them, a byte or two each.
pub fn engine(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let (config, limits) = setting(&mut input);
    let num_specs = between(&mut input, 1, 4);
    let specs: Vec<Spec> = (0..num_specs).map(|_| Spec::read(&mut input)).collect();
    let truths: Vec<Vec<Event>> = specs.iter().map(|spec| alone(spec, limits)).collect();
    let backend = Flaky::new(model(limits, byte(&mut input)));
    let mut run = Run {
        engine: Engine::new(config, limits, VOCABULARY.clone()).expect("the limits are fine"),
        backend,
        pipeline: Pipeline::default(),
        events: Vec::new(),
        submitted: Vec::new(),
        aborted: BTreeSet::new(),
    };
    for _ in 0..OPERATIONS_MAX {
        let Ok(operation) = input.arbitrary::<u8>() else {
            break;
        };
        run.operate(operation, &specs, &mut input);
        run.check();
    }
    run.finish();
    for (seq, spec) in run.submitted.iter().enumerate() {
        run.compare(SeqId(seq as u64), &truths[*spec]);
        note_held();
    }
}

/// An engine on its way.
struct Run {
    engine: Engine,
    backend: Flaky,
    pipeline: Pipeline<Flaky>,
    events: Vec<Event>,
    /// The spec of each sequence.
    submitted: Vec<usize>,
    aborted: BTreeSet<SeqId>,
}

impl Run {
    fn operate(&mut self, operation: u8, specs: &[Spec], input: &mut Unstructured<'_>) {
        match operation % 16 {
            0..=3 => self.submit(usize::from(operation / 16) % specs.len(), specs),
            4..=9 => drop(self.turn()),
            10 | 11 => {
                let seq = SeqId(u64::from(operation / 16));
                if self.engine.abort(seq) {
                    self.aborted.insert(seq);
                }
            }
            12 => {
                let overlap = !self.engine.is_overlapped();
                self.engine.set_overlap(overlap);
            }
            13 => {
                let phases = [Phase::Forward, Phase::Draw, Phase::Collect, Phase::Propose];
                self.backend.fails_next = Some(*pick(input, &phases));
                self.turn();
            }
            _ => {
                for _ in 0..byte(input) % 24 {
                    self.turn();
                    self.check();
                }
            }
        }
    }

    fn submit(&mut self, spec: usize, specs: &[Spec]) {
        if self.submitted.len() < 12 {
            let seq = self.engine.submit(Time(0), specs[spec].request());
            assert_eq!(seq, Ok(SeqId(self.submitted.len() as u64)));
            self.submitted.push(spec);
        }
    }

    /// One step, as a server turns them. False if there was none.
    fn turn(&mut self) -> bool {
        let (engine, backend) = (&mut self.engine, &mut self.backend);
        let turned = self.pipeline.turn(engine, backend, &mut Still::default());
        turned.expect("no invariant breaks")
    }

    fn check(&mut self) {
        self.engine
            .check_invariants()
            .expect("all is accounted for");
        self.events.extend(self.engine.poll_events());
        let stats = self.engine.stats();
        assert!(stats.num_blocks_free <= stats.num_blocks && stats.num_rows_free <= stats.num_rows);
    }

    fn finish(&mut self) {
        self.backend.fails_next = None;
        let mut num_steps = 0;
        while self.turn() {
            self.check();
            num_steps += 1;
            assert!(num_steps < STEPS_MAX, "no end in sight");
        }
        self.check();
        assert!(!self.engine.has_work());
        let stats = self.engine.stats();
        assert_eq!(stats.num_blocks_free, stats.num_blocks);
        assert_eq!(stats.num_rows_free, stats.num_rows);
        assert_eq!(stats.totals.num_finished, self.submitted.len() as u64);
    }

    /// Holds what a sequence got against what it gets alone: all of it, or a beginning where it was ended.
    fn compare(&self, seq: SeqId, truth: &[Event]) {
        let (got, mut expected) = (visible(&self.events, seq), visible(truth, SeqId(0)));
        assert!(got.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{got:?}");
        let is_end = |event: &(u32, EventKind)| matches!(event.1, EventKind::Finished(_));
        assert_eq!(got.iter().position(is_end), Some(got.len() - 1), "{got:?}");
        let Some((_, EventKind::Finished(finished))) = got.last() else {
            unreachable!("the last event is its end");
        };
        let was_ended = match &finished.finish {
            Finish::Aborted => self.aborted.contains(&seq),
            Finish::Error(RequestError::Engine(_)) => self.backend.num_failed > 0,
            _ => false,
        };
        if was_ended {
            expected.truncate(got.len() - 1);
            assert_eq!(got[..got.len() - 1], expected, "{seq:?}");
        } else {
            assert_eq!(got, expected, "{seq:?}");
        }
    }
}

/// What a reader sees of a sequence: all but the traces of scheduling and of the cache.
fn visible(events: &[Event], seq: SeqId) -> Vec<(u32, EventKind)> {
    let own = events.iter().filter(|event| event.seq == seq);
    let told =
        own.filter(|event| !matches!(event.kind, EventKind::Scheduled | EventKind::Preempted));
    told.map(|event| {
        let mut kind = event.kind.clone();
        if let EventKind::Finished(finished) = &mut kind {
            finished.usage.cached_tokens = 0;
        }
        (event.at, kind)
    })
    .collect()
}

/// A fresh engine and model with plenty of everything, no drafts, and this request alone.
fn alone(spec: &Spec, limits: BackendLimits) -> Vec<Event> {
    let limits = BackendLimits {
        num_blocks: 16,
        num_rows: limits.num_rows.min(1) * 8,
        ..limits
    };
    let config = EngineConfig {
        speculation: Speculation::OFF,
        prefix_cache: false,
        checked: true,
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(config, limits, VOCABULARY.clone()).expect("the limits are fine");
    let seq = engine.submit(Time(0), spec.request());
    assert_eq!(seq, Ok(SeqId(0)));
    run_to_end(&mut engine, &mut Fingerprint::new(plain_model(limits)))
        .expect("no invariant breaks")
}

fn setting(input: &mut Unstructured<'_>) -> (EngineConfig, BackendLimits) {
    let flags = byte(input);
    let num_blocks = between(input, 2, 6);
    let num_rows = match between(input, 0, 8) {
        0 | 1 => 0,
        num_rows => num_rows,
    };
    let speculation = Speculation {
        forced: between(input, 0, 9),
        suffix: between(input, 0, 15),
        ngram: between(input, 0, 15),
        mtp: between(input, 0, 5),
        draft_model: between(input, 0, 5),
    };
    let config = EngineConfig {
        max_num_seqs: between(input, 1, 6),
        max_num_batched_tokens: between(input, 1, 250),
        chunk_tokens_max: between(input, 1, 100),
        speculation,
        prefix_cache: flags & 1 == 0,
        overlap: flags & 2 != 0,
        rejected_drafts: match flags & 4 {
            0 => RejectedDrafts::Trim,
            _ => RejectedDrafts::Pad,
        },
        checked: true,
        ..EngineConfig::default()
    };
    let limits = BackendLimits {
        vocab_size: VOCAB_SIZE,
        num_blocks,
        num_rows,
        seq_len_max: SEQ_LEN_MAX.min(num_blocks * 64),
        query_tokens_max: 512,
    };
    (config, limits)
}

fn plain_model(limits: BackendLimits) -> FingerprintConfig {
    let mut config = FingerprintConfig::new(limits);
    config.bias = vec![
        (END, 1.0),
        (TokenId(2), 1.5),
        (THINK_CLOSE, 1.5),
        (POISON, -4.5),
    ];
    config.poison = Some(POISON);
    config
}

/// The same model, with others that draft beside it.
fn model(limits: BackendLimits, flags: u8) -> Fingerprint {
    let mut config = plain_model(limits);
    config.static_buffers = flags & 4 != 0;
    let wrong_per_mille = u32::from(flags >> 3) * 10;
    for (bit, drafter) in [(1, ModelDrafter::Mtp), (2, ModelDrafter::DraftModel)] {
        if flags & bit != 0 {
            config.drafters.push(Drafting {
                drafter,
                wrong_per_mille,
            });
        }
    }
    Fingerprint::new(config)
}

impl Spec {
    fn read(input: &mut Unstructured<'_>) -> Spec {
        let (flags, more) = (byte(input), byte(input));
        let prompt_len = between(input, 1, 100);
        let step = between(input, 1, 11);
        // Few different beginnings, so that prompts share theirs.
        let base = between(input, 0, 3);
        let prompt = (0..prompt_len).map(|idx| TokenId(1 + (base * 7 + idx * step) % 46));
        let stops = ["ab", "bab", " <", "€"];
        Spec {
            prompt: prompt.collect(),
            max_tokens: between(input, 1, 70),
            is_greedy: flags & 1 != 0,
            has_penalties: flags & 6 == 6,
            ends: flags & 8 != 0,
            reasons: flags & 16 != 0,
            budget: (flags & 32 != 0).then_some(u32::from(more) % 12),
            stops: match flags & 64 {
                0 => Vec::new(),
                _ => vec![stops[usize::from(more >> 4) % stops.len()].to_string()],
            },
            top_logprobs: (flags & 128 != 0).then_some(u32::from(more) % 4),
            seed: u64::from(byte(input)),
            salt: ["", "", "other"][usize::from(more) % 3],
            matcher: (more & 3 == 3).then(|| automaton(input)),
        }
    }

    fn request(&self) -> Request {
        let mut sampling = SamplingParams::greedy();
        sampling.seed = self.seed;
        sampling.temperature = if self.is_greedy { 0.0 } else { 1.0 };
        sampling.top_logprobs = self.top_logprobs;
        if self.has_penalties {
            sampling.frequency_penalty = 0.5;
            sampling.repetition_penalty = 1.25;
            sampling.bias = vec![(TokenId(9), 1.5), (TokenId(10), -1.0)];
        }
        let matcher = self.matcher.clone().map(|automaton| {
            let ends = self.ends;
            Box::new(Automaton { ends, ..automaton }) as Box<dyn lockstep_step::Matcher>
        });
        Request {
            prompt: self.prompt.clone(),
            sampling,
            max_tokens: self.max_tokens,
            end_tokens: if self.ends { vec![END] } else { Vec::new() },
            stop_strings: self.stops.clone(),
            tags: ParserOptions {
                format: TagFormat::Plain,
                starts_in_reasoning: self.reasons,
                reasoning: self.reasons,
                delivery: Delivery::Whole,
                tools: Arc::new(ToolSet::default()),
            },
            matcher,
            reasoning: self.budget.map(|max_tokens| ReasoningBudget {
                max_tokens,
                close: vec![THINK_CLOSE],
            }),
            speculation: None,
            token_events: true,
            cache_salt: self.salt.to_string(),
        }
    }
}

/// A grammar with forced stretches: most states leave one way on.
fn automaton(input: &mut Unstructured<'_>) -> Automaton {
    let num_states = 6;
    let mut edges = Vec::new();
    let mut accepts = Vec::new();
    for _ in 0..num_states {
        let shape = byte(input);
        let num_edges = [1, 1, 1, 1, 1, 2, 4, 0][usize::from(shape) % 8];
        let first = u32::from(byte(input));
        let token = |idx: u32| TokenId(3 + (first + idx * 5) % 44);
        let next = |idx: u32| ((first / 8 + idx) as usize) % num_states;
        edges.push((0..num_edges).map(|idx| (token(idx), next(idx))).collect());
        accepts.push(shape > 220);
    }
    let hint = byte(input);
    Automaton {
        edges,
        accepts,
        end: END,
        hint: [Hint::Honest, Hint::Honest, Hint::Wrong, Hint::Wild][usize::from(hint) % 4],
        broken_at: (hint > 230).then_some(usize::from(hint) % num_states),
        ..Automaton::default()
    }
}
