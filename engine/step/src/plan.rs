//! What one step computes. If you read one file of this engine, read this one.
//!
//! A plan names every block and every row by id. Nothing below it may derive a block, a row or a length
//! from how many tokens were accepted: such a derivation is how a step shorter than the acceptance
//! before it once zeroed a whole convolution.

use crate::{BlockId, MaskRow, Pos, RowId, SamplingParams, SeqId, StepId, TokenCount, TokenId};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Positions in a block of the KV cache. Blocks are aligned to absolute position.
pub const BLOCK_LEN: u32 = 64;

/// One step: a flat batch of sequences, each with the tokens to compute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepPlan {
    /// The number of this step.
    pub step: StepId,
    /// The sequences of the batch, in ascending order of their id.
    pub seqs: Vec<SeqPlan>,
    /// How many mask rows [`Backend::sample`](crate::Backend::sample) will be given.
    pub num_mask_rows: u32,
}

impl StepPlan {
    /// Query tokens of all sequences together.
    pub fn num_query_tokens(&self) -> usize {
        self.seqs.iter().map(|seq| seq.query.len()).sum()
    }
}

/// One sequence's part of a step.
///
/// ```text
/// positions   0 ......... start ................ start + query.len()
///             | computed  | committed | drafts  |
///             | in blocks | <------ query ----> |
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeqPlan {
    /// Whose tokens these are.
    pub seq: SeqId,
    /// Position of the first query token: the length of the prefix whose KV and state are valid.
    pub start: Pos,
    /// The tokens to compute: committed but uncomputed ones, then drafts.
    pub query: Vec<QueryToken>,
    /// How many tokens at the end of `query` are drafts.
    pub num_drafts: u32,
    /// Block `i` holds positions `64 * i .. 64 * (i + 1)`; covers `0 .. start + query.len()`.
    pub block_table: Vec<BlockId>,
    /// Recurrent state, where the model has any.
    pub rows: RowPlan,
    /// The query positions whose logits are sampled, in ascending order.
    pub scored: Vec<ScoredPosition>,
    /// How tokens are drawn.
    pub sampling: SamplingParams,
    /// For penalties: every known token at or before the first scored position, counted, in ascending order of
    /// token id. Empty where no penalty is set. Whoever finds out what [`QueryToken::Drawn`] stands for adds
    /// it, as output; later scored positions add the drafts before them.
    pub counts: Vec<TokenCount>,
}

impl SeqPlan {
    /// One past the position of the last query token.
    pub fn end(&self) -> Pos {
        Pos(self.start.0 + self.query.len() as u32)
    }

    /// The block and the offset in it of a position. The one place where a slot is derived.
    ///
    /// # Panics
    /// If the block table does not cover the position: such a plan was never checked.
    pub fn slot(&self, pos: Pos) -> (BlockId, u32) {
        let idx = (pos.0 / BLOCK_LEN) as usize;
        assert!(
            idx < self.block_table.len(),
            "{:?}: position {pos} needs block {idx} of {}",
            self.seq,
            self.block_table.len()
        );
        (self.block_table[idx], pos.0 % BLOCK_LEN)
    }
}

/// A token to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueryToken {
    /// Its id is known to the planner.
    Known(TokenId),
    /// It is what an earlier, still running step draws at this sequence's `scored[scored_idx]`.
    Drawn {
        /// The step that draws it.
        step: StepId,
        /// Index into that step's scored positions of the same sequence.
        scored_idx: u32,
    },
}

/// Which recurrent state a sequence reads and which rows it leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowPlan {
    /// Holds the state after exactly `start` tokens. None at `start = 0`, or if the model has no rows.
    pub read: Option<RowId>,
    /// The rows to write. A row that is read in a step is never written in it, so that a step can be
    /// computed twice.
    pub writes: Vec<RowWrite>,
}

/// A row to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowWrite {
    /// The row receives the state after the query token of this index.
    pub query_idx: u32,
    /// The row.
    pub row: RowId,
}

/// A query position whose logits are sampled. It draws the token of the position after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoredPosition {
    /// Index into the query.
    pub query_idx: u32,
    /// The mask that applies here; none for an unconstrained sequence.
    pub mask: Option<MaskRow>,
}
