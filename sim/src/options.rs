//! All that a run is: every size, feature and rate, drawn from its seed. Nothing else may decide how a run goes.

use crate::rng::Rng;
use lockstep_core::{DraftSource, EngineConfig, RejectedDrafts, Speculation};
use lockstep_server::{DeliveryPolicy, ToolGrammar};
use lockstep_step::{BLOCK_LEN, BackendLimits, ModelDrafter};
use lockstep_tags::TagFormat;
use std::fmt;

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computes {
    /// Hashes in place of a model.
    Fingerprint,
    /// The embedded model, on the CPU.
    Embedded,
}

/// What may happen to a deployment, and what its clients may do. Each is on or off by itself, so that every pair of
/// them meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// The embedded model computes.
    Embedded,
    /// The model has recurrent state.
    Rows,
    /// The next step is planned while one runs.
    Overlap,
    /// Prefixes are kept.
    PrefixCache,
    /// Requests have salts now and then.
    Salts,
    /// Buffers of a few fixed sizes.
    StaticBuffers,
    /// Drafts that a grammar rejects stay in the step.
    Pad,
    /// Every plan is held against all plans before it.
    Checked,
    /// Few blocks: sequences lose theirs.
    FewBlocks,
    /// A prompt is computed a few tokens at a time.
    SmallChunks,
    /// Few tokens fit into a step.
    SmallSteps,
    /// Few sequences run at once.
    FewSeqs,
    /// Few sequences may wait.
    ShortQueue,
    /// What a grammar forces is drafted.
    Forced,
    /// What followed the same words is drafted.
    Suffix,
    /// What followed the last few tokens before is drafted.
    Ngram,
    /// The model's own head drafts.
    Mtp,
    /// A model beside the model drafts.
    DraftModel,
    /// A model that drafts is always right.
    PerfectDrafter,
    /// The template opens reasoning.
    Reasoning,
    /// Requests offer tools.
    Tools,
    /// Calls are held to a grammar always.
    GrammarAlways,
    /// Answers are held to a schema, a choice or a regex.
    Structured,
    /// Calls are delivered as they are written, whether held or not.
    Eager,
    /// Answers end at strings.
    Stops,
    /// Tokens are drawn at a temperature, with penalties.
    Sampling,
    /// More than one choice.
    Choices,
    /// Log-probabilities are reported.
    Logprobs,
    /// Messages of Anthropic's API.
    Messages,
    /// Plain completions.
    Completions,
    /// Clients go away early.
    Cancels,
    /// Clients stop reading for a while.
    Stalls,
    /// Clients send the next request before the answer to the last.
    Pipelining,
    /// Clients send what is no request, or a bad one.
    Garbage,
    /// A crowd comes at once.
    Burst,
    /// Packets are late, some of them very.
    SlowNetwork,
    /// A client and the server can't reach each other for a while.
    Partition,
    /// A machine freezes and says nothing.
    Freeze,
    /// The server is killed and started again.
    Kill,
    /// The server is told to end, and started again.
    Drain,
    /// A step fails.
    StepError,
    /// The device is lost.
    DeviceLost,
    /// A step takes long.
    SlowStep,
    /// The clock jumps ahead.
    ClockJump,
    /// A NaN appears in one sequence's logits.
    NotANumber,
    /// The tokenizer or the template fails.
    TemplateError,
}

impl Feature {
    /// All of them, each with its share of runs in percent.
    pub const ALL: [(Feature, u64); 46] = [
        (Feature::Embedded, 7),
        (Feature::Rows, 60),
        (Feature::Overlap, 55),
        (Feature::PrefixCache, 70),
        (Feature::Salts, 25),
        (Feature::StaticBuffers, 35),
        (Feature::Pad, 35),
        (Feature::Checked, 50),
        (Feature::FewBlocks, 45),
        (Feature::SmallChunks, 45),
        (Feature::SmallSteps, 40),
        (Feature::FewSeqs, 35),
        (Feature::ShortQueue, 20),
        (Feature::Forced, 60),
        (Feature::Suffix, 40),
        (Feature::Ngram, 35),
        (Feature::Mtp, 45),
        (Feature::DraftModel, 35),
        (Feature::PerfectDrafter, 40),
        (Feature::Reasoning, 50),
        (Feature::Tools, 55),
        (Feature::GrammarAlways, 40),
        (Feature::Structured, 45),
        (Feature::Eager, 35),
        (Feature::Stops, 45),
        (Feature::Sampling, 60),
        (Feature::Choices, 30),
        (Feature::Logprobs, 35),
        (Feature::Messages, 50),
        (Feature::Completions, 40),
        (Feature::Cancels, 45),
        (Feature::Stalls, 25),
        (Feature::Pipelining, 20),
        (Feature::Garbage, 30),
        (Feature::Burst, 30),
        (Feature::SlowNetwork, 30),
        (Feature::Partition, 20),
        (Feature::Freeze, 15),
        (Feature::Kill, 15),
        (Feature::Drain, 15),
        (Feature::StepError, 20),
        (Feature::DeviceLost, 12),
        (Feature::SlowStep, 20),
        (Feature::ClockJump, 15),
        (Feature::NotANumber, 20),
        (Feature::TemplateError, 20),
    ];
}

/// A run's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// All else follows from it.
    pub seed: u64,
    /// In ascending order.
    pub features: Vec<Feature>,
    /// How calls are written.
    pub format: TagFormat,
    /// What the backend can hold.
    pub limits: BackendLimits,
    /// The engine's own limits.
    pub engine: EngineConfig,
    /// Models that draft, with how many of a thousand tokens are wrong on purpose.
    pub drafters: Vec<(ModelDrafter, u32)>,
    /// When calls are delivered.
    pub delivery: DeliveryPolicy,
    /// When calls are held to a grammar.
    pub tool_grammar: ToolGrammar,
    /// Microseconds that a step takes.
    pub step_us: u64,
    /// Share of packets that are lost and sent again, of a thousand.
    pub loss_per_mille: u64,
    /// The longest that a packet takes, in milliseconds.
    pub latency_ms_max: u64,
    /// Clients, each on a machine of its own.
    pub num_clients: u64,
    /// Requests of each.
    pub requests_per_client: u64,
}

impl Options {
    /// The options of a seed.
    pub fn of(seed: u64) -> Options {
        let features = features(seed);
        let has = |feature| features.contains(&feature);
        let is_embedded = has(Feature::Embedded);
        let mut rng = Rng::new(seed, "sizes");
        let seq_len_max = match is_embedded {
            true => 1024,
            false => rng.pick(&[320, 448, 512, 500]),
        };
        let max_num_seqs = match has(Feature::FewSeqs) {
            true => rng.within(1, 3) as u32,
            false => rng.within(4, 12) as u32,
        };
        let limits = limits(&features, &mut rng, seq_len_max, max_num_seqs);
        let engine = engine(&features, &mut rng, max_num_seqs);
        let wrong = match has(Feature::PerfectDrafter) {
            true => 0,
            false => rng.pick(&[100, 300, 700]),
        };
        let drafters = [
            (Feature::Mtp, ModelDrafter::Mtp, wrong),
            (Feature::DraftModel, ModelDrafter::DraftModel, wrong / 2),
        ];
        let drafters = drafters.into_iter().filter(|(feature, ..)| has(*feature));
        Options {
            seed,
            format: match is_embedded {
                true => TagFormat::Glm,
                false => rng.pick(&FORMATS),
            },
            limits,
            engine,
            drafters: drafters
                .map(|(_, drafter, wrong)| (drafter, wrong))
                .collect(),
            delivery: match has(Feature::Eager) {
                true => DeliveryPolicy::Eager,
                false => rng.pick(&[DeliveryPolicy::Auto, DeliveryPolicy::Whole]),
            },
            tool_grammar: match has(Feature::GrammarAlways) {
                true => ToolGrammar::Always,
                false => ToolGrammar::Asked,
            },
            step_us: rng.pick(&[200, 1_000, 5_000, 20_000]),
            loss_per_mille: match has(Feature::SlowNetwork) {
                true => rng.within(10, 100),
                false => 0,
            },
            latency_ms_max: match has(Feature::SlowNetwork) {
                true => rng.within(20, 300),
                false => rng.within(2, 10),
            },
            num_clients: rng.within(2, if is_embedded { 4 } else { 8 }),
            requests_per_client: rng.within(2, if is_embedded { 2 } else { 6 }),
            features,
        }
    }

    /// Whether the run has it.
    pub fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// What computes.
    pub fn computes(&self) -> Computes {
        match self.has(Feature::Embedded) {
            true => Computes::Embedded,
            false => Computes::Fingerprint,
        }
    }
}

/// What the backend can hold; the width of its logits is the model's.
fn limits(
    features: &[Feature],
    rng: &mut Rng,
    seq_len_max: u32,
    max_num_seqs: u32,
) -> BackendLimits {
    let has = |feature| features.contains(&feature);
    let per_seq = u32::div_ceil(seq_len_max, BLOCK_LEN);
    let num_blocks = match has(Feature::FewBlocks) {
        // Fewer than the longest sequence needs, or hardly more.
        true => per_seq - 2 + rng.within(0, 4) as u32,
        false => per_seq * max_num_seqs.min(8) + rng.within(0, 9) as u32,
    };
    let rows_max = u64::from(max_num_seqs);
    let num_rows = match (
        has(Feature::Rows) || has(Feature::Embedded),
        has(Feature::FewBlocks),
    ) {
        (false, _) => 0,
        (true, true) => rng.within(2, 3 * rows_max + 2) as u32,
        (true, false) => rng.within(3 * rows_max, 16 * rows_max) as u32,
    };
    let query_tokens_max = rng.pick(&[64, 128, 200, 512]);
    BackendLimits {
        vocab_size: 0,
        num_blocks,
        num_rows,
        seq_len_max,
        query_tokens_max,
    }
}

/// The engine's own limits, and what it does.
fn engine(features: &[Feature], rng: &mut Rng, max_num_seqs: u32) -> EngineConfig {
    let has = |feature| features.contains(&feature);
    let max_num_batched_tokens = match has(Feature::SmallSteps) {
        true => rng.within(1, 40) as u32,
        false => rng.within(64, 512) as u32,
    };
    let mut speculation = Speculation::OFF;
    for (feature, source, depth) in [
        (Feature::Forced, DraftSource::Forced, 8),
        (Feature::Suffix, DraftSource::Suffix, 8),
        (Feature::Ngram, DraftSource::Ngram, 6),
        (Feature::Mtp, DraftSource::Mtp, 5),
        (Feature::DraftModel, DraftSource::DraftModel, 5),
    ] {
        let depth = rng.within(1, depth) as u32;
        if has(feature) {
            *slot(&mut speculation, source) = depth;
        }
    }
    EngineConfig {
        max_num_seqs,
        max_num_batched_tokens,
        max_waiting_requests: match has(Feature::ShortQueue) {
            true => rng.within(1, 3) as u32,
            false => 256,
        },
        max_waiting_tokens: 1 << 20,
        chunk_tokens_max: match has(Feature::SmallChunks) {
            true => rng.pick(&[1, 2, 3, 7, 16, 33]),
            false => rng.pick(&[64, 128, 512]),
        },
        speculation,
        prefix_cache: has(Feature::PrefixCache),
        overlap: has(Feature::Overlap),
        rejected_drafts: match has(Feature::Pad) {
            true => RejectedDrafts::Pad,
            false => RejectedDrafts::Trim,
        },
        checked: has(Feature::Checked),
    }
}

/// The formats that the toy model speaks.
const FORMATS: [TagFormat; 3] = [TagFormat::Glm, TagFormat::QwenXml, TagFormat::HermesJson];

fn features(seed: u64) -> Vec<Feature> {
    let on = |&(feature, share): &(Feature, u64)| {
        let lane = format!("{feature:?}");
        Rng::new(seed, &lane).percent(share).then_some(feature)
    };
    Feature::ALL.iter().filter_map(on).collect()
}

/// The depth of a drafter, to be written.
fn slot(speculation: &mut Speculation, source: DraftSource) -> &mut u32 {
    match source {
        DraftSource::Suffix => &mut speculation.suffix,
        DraftSource::Ngram => &mut speculation.ngram,
        DraftSource::Mtp => &mut speculation.mtp,
        DraftSource::DraftModel => &mut speculation.draft_model,
        DraftSource::Forced | DraftSource::Replay => &mut speculation.forced,
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {:?}", self.seed, self.features)?;
        writeln!(f, "  {:?}", self.limits)?;
        writeln!(f, "  {:?}", self.engine)?;
        write!(
            f,
            "  format {:?}, drafters {:?}, {:?}, {:?}, step {} us, loss {}/1000, \
             latency up to {} ms, \
             {} clients x {} requests",
            self.format,
            self.drafters,
            self.delivery,
            self.tool_grammar,
            self.step_us,
            self.loss_per_mille,
            self.latency_ms_max,
            self.num_clients,
            self.requests_per_client
        )
    }
}
