//! A step as rows: the query tokens of all sequences, one after another. Which row a token has is decided
//! once, by the layout; kernels see rows and positions, and never ask whose they are.

use crate::{Isa, Pool};
use lockstep_step::{BlockId, LayoutShape, NO_ID, Pos, RowId, StepLayout, TokenId};
use std::ops::Range;

/// What computes: the instruction set and the threads.
#[derive(Clone, Copy)]
pub(crate) struct Machine<'a> {
    pub(crate) isa: Isa,
    pub(crate) pool: &'a Pool,
}

/// The rows of a step. Those of sequences come first; the others are padding, which has neither token nor
/// position nor slot.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    layout: &'a StepLayout,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(layout: &'a StepLayout) -> Batch<'a> {
        Batch { layout }
    }

    /// All rows, padding included.
    pub(crate) fn num_rows(&self) -> usize {
        self.layout.padded_rows()
    }

    /// Rows that are no padding: the first ones.
    pub(crate) fn num_real_rows(&self) -> usize {
        self.layout.num_rows()
    }

    /// Whether buffers have sizes of their own, which go beyond what the step needs.
    pub(crate) fn is_fixed(&self) -> bool {
        self.layout.shape() != LayoutShape::Exact
    }

    pub(crate) fn num_seqs(&self) -> usize {
        self.layout.num_seqs()
    }

    /// The token of a row; none for padding.
    pub(crate) fn token(&self, row: usize) -> Option<TokenId> {
        let token = self.layout.tokens()[row];
        (token != NO_ID).then_some(TokenId(token))
    }

    /// The rows of a sequence.
    pub(crate) fn rows(&self, seq_idx: usize) -> Range<usize> {
        self.layout.rows(seq_idx)
    }

    /// The sequence that a row belongs to, and the row's place in its query; none for padding.
    pub(crate) fn owner(&self, row: usize) -> Option<(usize, usize)> {
        let seq_idx = self.layout.owners()[row];
        if seq_idx == NO_ID {
            return None;
        }
        let seq_idx = seq_idx as usize;
        Some((seq_idx, row - self.layout.rows(seq_idx).start))
    }

    /// The position of a row in its sequence. That of padding means nothing.
    pub(crate) fn pos(&self, row: usize) -> Pos {
        Pos(self.layout.positions()[row])
    }

    /// Where a row's key and value lie; nowhere for padding.
    pub(crate) fn slot(&self, row: usize) -> Option<(BlockId, u32)> {
        self.layout.slot(row)
    }

    /// Where a position of a sequence lies.
    pub(crate) fn slot_at(&self, seq_idx: usize, pos: Pos) -> (BlockId, u32) {
        self.layout.slot_at(seq_idx, pos)
    }

    /// The blocks of a sequence, as ids, with padding at the end.
    pub(crate) fn block_table(&self, seq_idx: usize) -> &'a [u32] {
        self.layout.block_table(seq_idx)
    }

    /// The row of state that a sequence goes on from.
    pub(crate) fn state_read(&self, seq_idx: usize) -> Option<RowId> {
        self.layout.state_read(seq_idx)
    }

    /// The row of state that is to hold what is known after a row's token.
    pub(crate) fn state_write(&self, row: usize) -> Option<RowId> {
        self.layout.state_write(row)
    }

    /// Whether a row's logits are wanted.
    #[cfg(planted)]
    pub(crate) fn is_scored(&self, row: usize) -> bool {
        let scored = &self.layout.scored()[..self.layout.num_scored()];
        scored.contains(&(row as u32))
    }

    /// Makes the padding of a buffer of `width` floats per row not finite, so that whoever reads it is seen.
    pub(crate) fn poison_padding(&self, buffer: &mut [f32], width: usize) {
        buffer[self.num_real_rows() * width..].fill(f32::NAN);
    }
}
