//! What an engine is told when it is made, and what it tells about itself.

use crate::{DraftTotals, Speculation};
use core::fmt;
use lockstep_step::BackendLimits;

/// Limits of the engine's own; the backend's limits hold beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Sequences that run at once, at least 1. With recurrent state it is also half of the rows.
    pub max_num_seqs: u32,
    /// Query tokens of a step, at least 1.
    pub max_num_batched_tokens: u32,
    /// Sequences that may wait, beyond those that the next step can take in.
    pub max_waiting_requests: u32,
    /// Tokens of waiting sequences, all together.
    pub max_waiting_tokens: u64,
    /// Query tokens of one sequence in a step, drafts aside, at least 1.
    pub chunk_tokens_max: u32,
    /// What drafts for sequences that don't say so themselves. It changes speed and never output.
    pub speculation: Speculation,
    /// Whether what a sequence computed is kept for others with the same beginning, as long as nobody needs
    /// the room. It changes speed and never output.
    pub prefix_cache: bool,
    /// Whether the next step is planned while one runs. It changes speed and never output.
    pub overlap: bool,
    /// What becomes of drafts that a constraint rejects. It changes speed and never output.
    pub rejected_drafts: RejectedDrafts,
    /// Whether each plan is held against all plans before it, too.
    pub checked: bool,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig {
            max_num_seqs: 64,
            max_num_batched_tokens: 2048,
            max_waiting_requests: 256,
            max_waiting_tokens: 1 << 20,
            chunk_tokens_max: 512,
            speculation: Speculation {
                forced: 8,
                ..Speculation::OFF
            },
            prefix_cache: true,
            overlap: false,
            rejected_drafts: RejectedDrafts::Trim,
            checked: false,
        }
    }
}

/// What becomes of drafts that a constraint rejects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RejectedDrafts {
    /// They are cut off before the step is planned, where the constraint can be asked by then.
    #[default]
    Trim,
    /// They stay in the step as padding: computed, and never drawn.
    Pad,
}

/// Why no engine can be made of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// This limit is 0.
    Zero(
        /// The field.
        &'static str,
    ),
    /// A model with recurrent state needs two rows to run at all: one to read and one to write.
    TooFewRows {
        /// Rows there are.
        num_rows: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Zero(field) => write!(f, "{field} is 0, at least 1 is needed"),
            ConfigError::TooFewRows { num_rows } => {
                write!(f, "num_rows is {num_rows}, at least 2 are needed")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

impl EngineConfig {
    pub(crate) fn check(&self, limits: &BackendLimits) -> Result<(), ConfigError> {
        let fields = [
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("chunk_tokens_max", self.chunk_tokens_max),
            ("max_waiting_requests", self.max_waiting_requests),
            ("num_blocks", limits.num_blocks),
            ("query_tokens_max", limits.query_tokens_max),
            ("seq_len_max", limits.seq_len_max),
            ("vocab_size", limits.vocab_size),
        ];
        if let Some((field, _)) = fields.into_iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::Zero(field));
        }
        match limits.num_rows {
            1 => Err(ConfigError::TooFewRows { num_rows: 1 }),
            _ => Ok(()),
        }
    }
}

/// What the engine is doing. Totals only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sequences that run.
    pub num_running: usize,
    /// Sequences that wait.
    pub num_waiting: usize,
    /// Tokens of waiting sequences.
    pub num_waiting_tokens: u64,
    /// Microseconds since the longest waiting sequence came, as of the last verb that was told the time.
    pub oldest_waiting_us: u64,
    /// Blocks that can be had: those that nothing holds, and those that only the prefix cache holds.
    pub num_blocks_free: usize,
    /// Of these, blocks that only the prefix cache holds.
    pub num_blocks_cached: usize,
    /// All blocks.
    pub num_blocks: usize,
    /// Rows that can be had, in the same sense.
    pub num_rows_free: usize,
    /// Of these, rows that only the prefix cache holds.
    pub num_rows_cached: usize,
    /// All rows.
    pub num_rows: usize,
    /// Totals since the engine was made.
    pub totals: Totals,
}

/// Counted since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sequences taken.
    pub num_submitted: u64,
    /// Sequences that ended, whatever the reason.
    pub num_finished: u64,
    /// Times that a sequence lost its blocks.
    pub num_preemptions: u64,
    /// Steps planned.
    pub num_steps: u64,
    /// Of these, steps that were planned while one ran.
    pub num_steps_overlapped: u64,
    /// Parts of steps that did not count, since a draft that they were planned on was wrong.
    pub num_void_parts: u64,
    /// Parts of steps with fewer drafts than the step before had accepted for their sequence.
    pub num_shorter_parts: u64,
    /// Query tokens of these.
    pub num_query_tokens: u64,
    /// Prompt tokens of sequences taken.
    pub num_prompt_tokens: u64,
    /// Tokens committed.
    pub num_output_tokens: u64,
    /// Drafts planned.
    pub num_drafts: u64,
    /// Drafts accepted.
    pub num_drafts_accepted: u64,
    /// The same by where drafts come from.
    pub drafts: DraftTotals,
    /// Mask rows filled.
    pub num_mask_rows: u64,
    /// Mask rows of a plan that were left empty, since a draft before them can't be drawn.
    pub num_mask_rows_left_out: u64,
    /// Tokens that matchers took while masks were filled, and gave back.
    pub num_rolled_back: u64,
    /// Control tokens dropped from the text.
    pub num_dropped_special: u64,
    /// Tokens of sequences when they were first admitted, each looked up in the prefix cache.
    pub num_looked_up_tokens: u64,
    /// Of these, those that were found.
    pub num_cached_tokens: u64,
    /// Tokens of sequences that had lost their blocks, found again when they came back.
    pub num_recovered_tokens: u64,
    /// Cached blocks that were given up for others.
    pub num_evicted_blocks: u64,
    /// Cached rows that were given up for others, or with their block.
    pub num_evicted_rows: u64,
}
