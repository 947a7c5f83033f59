//! The loop around the engine with nothing of HTTP around it, and what other tests need to make one.

use super::*;
use lockstep_core::{EngineConfig, Vocabulary};
use lockstep_fingerprint::{Fingerprint, FingerprintConfig};
use lockstep_step::{BackendLimits, SamplingParams, TokenId};
use lockstep_tags::{Delivery, ParserOptions, TagFormat, ToolSet};

pub(crate) const VOCAB_SIZE: u32 = 40;

pub(crate) fn limits() -> BackendLimits {
    BackendLimits {
        vocab_size: VOCAB_SIZE,
        num_blocks: 64,
        num_rows: 64,
        seq_len_max: 256,
        query_tokens_max: 512,
    }
}

/// A loop whose inputs have ended already: it computes what its engine is given, and then nothing more.
pub(crate) fn driver<B: Backend>(backend: B, num_mask_threads: usize) -> Driver<B> {
    let words = (0..VOCAB_SIZE).map(|token| format!("w{token} ").into_bytes().into());
    let vocabulary = Arc::new(Vocabulary::new(words.collect(), vec![]));
    let config = EngineConfig {
        checked: true,
        ..EngineConfig::default()
    };
    let (sender, inputs) = mpsc::unbounded_channel::<Input>();
    let clock = Clock::start();
    Driver {
        engine: Engine::new(config, limits(), vocabulary).expect("the limits are fine"),
        backend,
        inputs,
        input_sender: sender.downgrade(),
        clock,
        step_pause: None,
        status: Arc::new(Status::default()),
        metrics: Arc::new(Metrics::new("tiny", &limits())),
        masks: MaskWorkers::new(num_mask_threads, clock).expect("threads"),
        pipeline: Pipeline::default(),
        observer: Box::new(crate::observer::Nobody),
        step_started: Time::default(),
    }
}

/// 40 tokens after 12 others, held to nothing.
pub(crate) fn plain_request(seed: u64) -> Request {
    Request {
        prompt: (0..12).map(|idx| TokenId(idx * 3 + 1)).collect(),
        sampling: SamplingParams {
            temperature: 1.0,
            seed,
            top_logprobs: Some(1),
            ..SamplingParams::greedy()
        },
        max_tokens: 40,
        end_tokens: vec![],
        stop_strings: vec![],
        tags: ParserOptions {
            format: TagFormat::Plain,
            starts_in_reasoning: false,
            reasoning: false,
            delivery: Delivery::Whole,
            tools: ToolSet::default().into(),
        },
        matcher: None,
        reasoning: None,
        speculation: None,
        token_events: true,
        cache_salt: String::new(),
    }
}

/// The value of a metric without labels of its own.
pub(crate) fn metric(metrics: &Metrics, name: &str) -> f64 {
    let page = metrics.render();
    let start = format!("{name}{{");
    let lines = page.lines().filter(|line| line.starts_with(&start));
    let values: Vec<f64> = lines
        .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
        .collect();
    assert!(!values.is_empty(), "{name} is not in\n{page}");
    values.iter().sum()
}

/// Is told of each token before its reader is, and looks at the page of metrics then.
struct PageReader {
    metrics: Arc<Metrics>,
    tokens: Arc<std::sync::atomic::AtomicU32>,
}

impl Observer for PageReader {
    fn event(&mut self, event: &Event) {
        if let EventKind::Token { .. } = event.kind {
            let told = self.tokens.fetch_add(1, Ordering::SeqCst) + 1;
            let counted = metric(&self.metrics, "vllm:generation_tokens_total");
            assert!(
                counted >= f64::from(told),
                "{counted} of {told} are counted"
            );
        }
    }
}

#[tokio::test]
async fn a_token_is_counted_before_anybody_can_have_read_it() {
    let mut driver = driver(Fingerprint::new(FingerprintConfig::new(limits())), 0);
    let tokens = Arc::new(std::sync::atomic::AtomicU32::new(0));
    driver.observer = Box::new(PageReader {
        metrics: driver.metrics.clone(),
        tokens: tokens.clone(),
    });
    for seed in 0..3 {
        let submitted = driver.engine.submit(Time::default(), plain_request(seed));
        submitted.expect("it fits");
    }
    driver.run().await;
    assert_eq!(tokens.load(Ordering::SeqCst), 3 * 40);
}
