//! Captures of a real engine over the model made of hashes: replayed as they are, alone and in other company, and
//! with one thing in them changed.

mod compare;
mod corruption;
mod files;
mod operations;
mod redaction;
mod rings;
mod tabulate;

use crate::{
    Buffer, Capture, Header, PackageId, Recorder, Redaction, Stage, Verdict, Witness, replay,
    write_header,
};
use lockstep_core::{
    Engine, EngineConfig, Pipeline, ReasoningBudget, Request, Speculation, Still, Time, Vocabulary,
};
use lockstep_fingerprint::{Drafting, Fingerprint, FingerprintConfig};
use lockstep_step::{
    BackendLimits, Bitmask, Matcher, MatcherError, ModelDrafter, SamplingParams, TokenId,
};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};
use proptest::prelude::*;
use std::sync::Arc;

const VOCAB_SIZE: u32 = 64;
const END: TokenId = TokenId(60);

fn limits() -> BackendLimits {
    BackendLimits {
        vocab_size: VOCAB_SIZE,
        num_blocks: 48,
        num_rows: 96,
        seq_len_max: 512,
        query_tokens_max: 256,
    }
}

fn vocabulary() -> Arc<Vocabulary> {
    vocabulary_of(VOCAB_SIZE)
}

fn vocabulary_of(len: u32) -> Arc<Vocabulary> {
    let word = |token: u32| -> Box<[u8]> {
        match token {
            // Halves of a character.
            21 => vec![0xc3].into(),
            22 => vec![0xa9].into(),
            60 => "<end>".as_bytes().into(),
            61 => "<think>".as_bytes().into(),
            62 => "</think>".as_bytes().into(),
            token => format!("w{token} ").into_bytes().into(),
        }
    };
    let special = (0..len).map(|token| token == END.0).collect();
    Arc::new(Vocabulary::new((0..len).map(word).collect(), special))
}

/// Allows every token but those of one remainder, another one after each token.
struct Skip {
    modulus: u32,
    source: String,
    taken: u32,
}

impl Skip {
    fn new(modulus: u32) -> Skip {
        Skip {
            modulus,
            source: format!("skip {modulus}"),
            taken: 0,
        }
    }

    fn allows(&self, token: TokenId) -> bool {
        token == END || !(token.0 + self.taken).is_multiple_of(self.modulus)
    }
}

impl Matcher for Skip {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        let tokens = (0..VOCAB_SIZE).map(TokenId);
        let allowed = tokens.filter(|&token| self.allows(token));
        allowed.for_each(|token| mask.allow(token));
        Ok(())
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        if token == END || !self.allows(token) {
            return Err(MatcherError::Rejected(token));
        }
        self.taken += 1;
        Ok(())
    }

    fn rollback(&mut self, num_tokens: u32) {
        self.taken -= num_tokens;
    }

    fn depth(&self) -> u32 {
        self.taken
    }

    fn can_finish(&self) -> bool {
        true
    }

    fn source(&self) -> Option<&str> {
        Some(&self.source)
    }

    fn forced(&mut self, num_max: usize) -> Vec<TokenId> {
        // A guess like any other.
        (0..num_max as u32)
            .map(|idx| TokenId(30 + (self.taken + idx) % 7))
            .collect()
    }
}

fn matcher(source: &str) -> Result<Option<Box<dyn Matcher>>, String> {
    let modulus = source
        .strip_prefix("skip ")
        .and_then(|own| own.parse().ok());
    let modulus = modulus.ok_or_else(|| format!("{source:?} is no constraint"))?;
    Ok(Some(Box::new(Skip::new(modulus))))
}

/// What a run is made of.
#[derive(Clone, Debug)]
struct Options {
    seed: u64,
    num_requests: u64,
    overlap: bool,
    speculation: Speculation,
    prefix_cache: bool,
    num_blocks: u32,
    has_rows: bool,
    chunk: u32,
    redaction: Redaction,
    /// Tokens that reasoning may take.
    reasoning: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            num_requests: 6,
            overlap: true,
            speculation: "forced:4,suffix:4,mtp:3".parse().expect("drafters"),
            prefix_cache: true,
            num_blocks: 48,
            has_rows: true,
            chunk: 40,
            redaction: Redaction::None,
            reasoning: None,
        }
    }
}

fn options() -> impl Strategy<Value = Options> {
    let drafters = prop_oneof![
        Just("off"),
        Just("forced:4"),
        Just("suffix:6,ngram:3"),
        Just("forced:4,mtp:3"),
        Just("draft_model:4"),
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let sizes = (8u32..48, 5u32..100, 1u64..9);
    let whole = (any::<u64>(), flags, sizes, drafters, any::<bool>());
    whole.prop_map(|(seed, flags, sizes, drafters, budget)| Options {
        seed,
        reasoning: budget.then_some(2 + (seed % 5) as u32),
        num_requests: sizes.2,
        overlap: flags.0,
        prefix_cache: flags.1,
        has_rows: flags.2,
        num_blocks: sizes.0,
        chunk: sizes.1,
        speculation: drafters.parse().expect("drafters"),
        redaction: Redaction::None,
    })
}

fn request(options: &Options, idx: u64) -> Request {
    let seed = options.seed.wrapping_mul(31).wrapping_add(idx);
    // Some begin alike, so that prefixes are found again.
    let len = 3 + (seed % 90) as u32;
    let shared = (0..len).map(|at| TokenId((at * 7 + (idx % 3) as u32) % 60));
    let format = [TagFormat::Plain, TagFormat::Glm][(seed % 2) as usize];
    Request {
        prompt: shared.chain([TokenId((seed % 59) as u32)]).collect(),
        sampling: SamplingParams {
            temperature: [0.0, 0.8, 1.3][(seed % 3) as usize],
            top_k: (seed % 5) as u32 * 4,
            frequency_penalty: (seed % 4) as f32 * 0.3,
            seed,
            top_logprobs: seed.is_multiple_of(3).then_some(2),
            ..SamplingParams::greedy()
        },
        max_tokens: 5 + (seed % 30) as u32,
        end_tokens: vec![END],
        stop_strings: match seed % 4 {
            0 => vec!["w3".to_string()],
            _ => vec![],
        },
        tags: ParserOptions {
            format,
            starts_in_reasoning: seed.is_multiple_of(5),
            reasoning: true,
            delivery: Delivery::Eager,
            tools: ToolSet::default().into(),
        },
        matcher: idx
            .is_multiple_of(2)
            .then(|| Box::new(Skip::new(3 + idx as u32)) as Box<dyn Matcher>),
        reasoning: options.reasoning.map(|max_tokens| ReasoningBudget {
            max_tokens,
            close: vec![TokenId(62)],
        }),
        speculation: None,
        token_events: true,
        cache_salt: String::new(),
    }
}

fn model(limits: BackendLimits) -> FingerprintConfig {
    let mut config = FingerprintConfig::new(limits);
    config.bias = vec![
        (END, 0.5),
        (TokenId(61), 0.5),
        (TokenId(62), 1.0),
        (TokenId(3), 0.5),
    ];
    config
}

fn header(options: &Options, limits: BackendLimits) -> Header {
    Header {
        build: "test".to_string(),
        package: PackageId::default(),
        backend: "fingerprint".to_string(),
        limits,
        settings: vec![("max_num_batched_tokens".to_string(), "128".to_string())],
        redaction: options.redaction,
        begun: 0,
        is_whole: true,
    }
}

fn limits_of(options: &Options) -> BackendLimits {
    BackendLimits {
        num_blocks: options.num_blocks,
        num_rows: if options.has_rows { 96 } else { 0 },
        ..limits()
    }
}

/// A run of the engine, as the bytes of a file.
fn recorded(options: &Options) -> Vec<u8> {
    let buffer = Buffer::default();
    record_into(options, Arc::new(buffer.clone()));
    let mut bytes = Vec::new();
    let header = header(options, limits_of(options));
    write_header(&mut bytes, &header).expect("memory");
    bytes.extend(buffer.bytes());
    bytes
}

/// A run of the engine, whose records go there.
fn record_into(options: &Options, sink: Arc<dyn crate::Sink>) {
    let limits = limits_of(options);
    let mut config = model(limits);
    config.drafters = [ModelDrafter::Mtp, ModelDrafter::DraftModel]
        .map(|drafter| Drafting {
            drafter,
            wrong_per_mille: 300,
        })
        .to_vec();
    let engine_config = EngineConfig {
        max_num_seqs: 5,
        max_num_batched_tokens: 128,
        chunk_tokens_max: options.chunk,
        speculation: options.speculation,
        prefix_cache: options.prefix_cache,
        overlap: options.overlap,
        ..EngineConfig::default()
    };
    let mut recorder = Recorder::new(sink, options.redaction, 99);
    let mut engine = Engine::new(engine_config, limits, vocabulary()).expect("limits");
    let mut backend = recorder.around(Fingerprint::new(config));
    let mut pipeline = Pipeline::default();
    let mut next = 0;
    loop {
        // Requests come while others run.
        for _ in 0..2 {
            let stats = engine.stats();
            let has_room = stats.num_running + stats.num_waiting < 9;
            if next < options.num_requests && has_room {
                let request = request(options, next);
                recorder.submitting(&format!("request-{next}"), 0, &request);
                let submitted = engine.submit(Time::default(), request);
                recorder.submitted(submitted.as_ref().copied());
                next += 1;
            }
        }
        let worked = pipeline
            .turn(&mut engine, &mut backend, &mut Still::default())
            .expect("no invariant breaks");
        for event in engine.poll_events() {
            recorder.event(&event);
        }
        if !worked && next == options.num_requests {
            break;
        }
    }
    recorder.ended("the test is over");
}

fn replayed(capture: &Capture, num_seqs: u32) -> Verdict {
    let limits = BackendLimits {
        num_rows: capture.header.limits.num_rows.min(64),
        ..limits()
    };
    let witness = Witness {
        backend: Fingerprint::new(model(limits)),
        vocabulary: vocabulary(),
        matcher: &matcher,
        response: &|_, _| None,
        num_seqs,
        progress: &|_, _| {},
    };
    replay(capture, witness)
        .expect("it can be replayed")
        .verdict
}

fn capture(options: &Options) -> Capture {
    let capture = Capture::of_bytes(&recorded(options)).expect("a capture");
    assert_eq!(capture.damage, None);
    assert_eq!(capture.oddities, Vec::<String>::new());
    capture
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_sound_engine_agrees_with_itself(options in options(), num_seqs in 1u32..7) {
        let capture = capture(&options);
        let verdict = replayed(&capture, num_seqs);
        prop_assert_eq!(verdict.guilty(), None);
        for stage in [Stage::Schedule, Stage::Logits, Stage::Mask, Stage::Draw] {
            prop_assert!(verdict.at(stage).passes(), "{:?}", verdict.at(stage));
        }
        for stage in [Stage::Verify, Stage::Detokenize, Stage::Stop] {
            prop_assert!(verdict.at(stage).passes(), "{:?}", verdict.at(stage));
        }
        // One whose only token ends it says no text.
        let tags = verdict.at(Stage::Tags);
        prop_assert!(tags.passes() || tags.is_unobserved(), "{tags:?}");
        prop_assert!(verdict.at(Stage::Stream).is_unobserved());
        let drawn = verdict.at(Stage::Logits);
        prop_assert_eq!(drawn.num_compared, verdict.at(Stage::Draw).num_compared);
    }
}
