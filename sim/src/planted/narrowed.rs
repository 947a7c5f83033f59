//! A planted fault of a kernel, recorded, replayed and narrowed down to layer and operation: what a capture is for.

use crate::model::embedded;
use lockstep_capture::{
    Buffer, Capture, Header, PackageId, Recorder, Redaction, Replayed, Stage, Witness, replay,
    watched, write_header,
};
use lockstep_core::{
    Engine, EngineConfig, Pipeline, Request, Speculation, Still, Time, Vocabulary,
};
use lockstep_cpu::{CpuBackend, CpuOptions, WeightRule};
use lockstep_package::{LayerType, NoProgress};
use lockstep_step::planted::{Planted, set};
use lockstep_step::{Backend, Bitmask, Matcher, MatcherError, SamplingParams, TokenId};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};
use std::sync::Arc;

/// Tokens that are drafted for each step.
const DEPTH: u32 = 4;

/// The embedded model, which drafts for itself and is mostly right.
fn backend() -> CpuBackend {
    let package = embedded();
    let options = CpuOptions {
        weights: WeightRule::Q8,
        num_blocks: 32,
        num_rows: 64,
        query_tokens_max: 128,
        seq_len_max: Some(512),
        ..CpuOptions::default()
    };
    CpuBackend::load_with_draft(&package, Some(&package), &options, &NoProgress)
        .expect("the embedded model fits")
}

fn vocabulary(len: u32) -> Arc<Vocabulary> {
    let words = (0..len).map(|token| format!("w{token} ").into_bytes().into());
    Arc::new(Vocabulary::new(words.collect(), vec![false; len as usize]))
}

/// Allows every token but one in seven.
struct Most {
    vocab_size: u32,
    taken: u32,
}

impl Most {
    fn boxed(vocab_size: u32) -> Box<dyn Matcher> {
        Box::new(Most {
            vocab_size,
            taken: 0,
        })
    }
}

impl Matcher for Most {
    fn fill(&mut self, mask: &mut Bitmask) -> Result<(), MatcherError> {
        let allowed = (0..self.vocab_size).filter(|token| token % 7 != 3);
        allowed.for_each(|token| mask.allow(TokenId(token)));
        Ok(())
    }

    fn consume(&mut self, token: TokenId) -> Result<(), MatcherError> {
        if token.0 % 7 == 3 {
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
        Some("most")
    }
}

fn request(idx: u32, vocab_size: u32) -> Request {
    Request {
        prompt: (0..12 + idx).map(|at| TokenId(at * 11 + idx)).collect(),
        sampling: SamplingParams::greedy(),
        // Few are left where many were accepted: the last steps are short.
        max_tokens: 14 + idx,
        end_tokens: vec![],
        stop_strings: vec![],
        tags: ParserOptions {
            format: TagFormat::Plain,
            starts_in_reasoning: false,
            reasoning: false,
            delivery: Delivery::Eager,
            tools: ToolSet::default().into(),
        },
        matcher: Some(Most::boxed(vocab_size)),
        reasoning: None,
        speculation: None,
        token_events: true,
        cache_salt: String::new(),
    }
}

fn recorded(is_watched: bool) -> Capture {
    let buffer = Buffer::default();
    let mut recorder = Recorder::new(Arc::new(buffer.clone()), Redaction::None, 7);
    let mut backend = recorder.around(backend());
    assert_eq!(backend.watch_ops(is_watched), is_watched);
    let limits = backend.limits();
    let config = EngineConfig {
        max_num_batched_tokens: limits.query_tokens_max,
        speculation: Speculation {
            draft_model: DEPTH,
            ..Speculation::OFF
        },
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(config, limits, vocabulary(limits.vocab_size)).expect("limits");
    for idx in 0..3 {
        let request = request(idx, limits.vocab_size);
        recorder.submitting(&format!("request-{idx}"), 0, &request);
        let submitted = engine.submit(Time::default(), request);
        recorder.submitted(submitted.as_ref().copied());
    }
    let mut pipeline = Pipeline::default();
    while pipeline
        .turn(&mut engine, &mut backend, &mut Still::default())
        .expect("no invariant breaks")
    {
        engine
            .poll_events()
            .iter()
            .for_each(|event| recorder.event(event));
    }
    let header = Header {
        build: "test".to_owned(),
        package: PackageId::default(),
        backend: "cpu".to_owned(),
        limits,
        settings: vec![],
        redaction: Redaction::None,
        begun: 0,
        is_whole: true,
    };
    let mut bytes = Vec::new();
    write_header(&mut bytes, &header).expect("memory");
    bytes.extend(buffer.bytes());
    Capture::of_bytes(&bytes).expect("a capture")
}

fn replayed(capture: &Capture) -> Replayed {
    let vocab_size = capture.header.limits.vocab_size;
    let witness = Witness {
        backend: backend(),
        vocabulary: vocabulary(vocab_size),
        matcher: &|_| Ok(Some(Most::boxed(vocab_size))),
        response: &|_, _| None,
        num_seqs: 2,
        progress: &|_, _| {},
    };
    replay(capture, witness).expect("it can be replayed")
}

fn assert_named(replayed: &Replayed, near: Option<&str>) {
    let (stage, first) = replayed.verdict.guilty().expect("something differs");
    assert_eq!((stage, first.near.as_deref()), (Stage::Logits, near));
    let masks = replayed.verdict.at(Stage::Mask);
    assert!(masks.passes(), "{masks:?}");
    assert!(replayed.verdict.at(Stage::Schedule).passes());
    assert!(replayed.verdict.at(Stage::StateRow).passes());
}

#[test]
fn a_convolution_that_computes_zeros_is_named() {
    let layers = &embedded().config.layer_types;
    let linear = layers
        .iter()
        .position(|kind| *kind == LayerType::LinearAttention);
    let name = format!(
        "layer {}: conv",
        linear.expect("a layer with a convolution")
    );
    let sound = replayed(&recorded(true));
    assert_eq!(sound.verdict.guilty(), None);
    assert!(sound.num_ops > 0);
    set(Some(Planted::AcceptCountZeroesConv));
    let with_ops = recorded(true);
    let without_ops = recorded(false);
    let watched = watched(&without_ops, backend());
    set(None);
    assert_named(&replayed(&with_ops), Some(&name));
    // Without digests of operations the stage is known, and what computes the plans again on what is suspected
    // says the rest.
    assert_named(&replayed(&without_ops), None);
    let watched = watched.expect("its plans can be computed again");
    assert_named(&replayed(&watched), Some(&name));
}
