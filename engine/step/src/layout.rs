//! A step laid out in buffers: what kernels read instead of a plan, and what a captured graph needs, since it
//! can change neither a length nor an address. Plain data from a plan and the tokens its query stands for.
//!
//! Each query token is a row. With a fixed shape the number of rows is rounded up to one of a few batch
//! sizes, and what is left over is padding: all of its entries are [`NO_ID`]. A padding row goes through
//! whatever treats rows one by one. It has no slot and no state to write, and nothing reads it.

use crate::{BLOCK_LEN, BlockId, Pos, RowId, SeqPlan, TokenId};
use alloc::vec::Vec;
use core::ops::Range;

/// Stands in a buffer where there is no token, position, slot, sequence, block or row.
pub const NO_ID: u32 = u32::MAX;

/// How large the buffers of a step are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayoutShape {
    /// As large as the step needs.
    #[default]
    Exact,
    /// Of one of the sizes of [`batch_size`]: there is nothing about a step that isn't padded to it.
    Fixed {
        /// The most query tokens of one step.
        query_tokens_max: u32,
        /// The longest sequence in tokens: it decides the width of a block table.
        seq_len_max: u32,
    },
}

/// The batch size that a number of rows is rounded up to: 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128 and so
/// on, but no more than `num_max`, which is a size itself.
pub fn batch_size(num_rows: usize, num_max: usize) -> usize {
    let power = num_rows.next_power_of_two();
    // Half way between two powers, where that is a multiple of four.
    let between = power / 4 * 3;
    let size = match between.is_multiple_of(4) && between >= num_rows {
        true => between,
        false => power,
    };
    if num_rows <= num_max {
        size.min(num_max)
    } else {
        size
    }
}

/// The buffers of a step, to be filled again for the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepLayout {
    shape: LayoutShape,
    num_rows: usize,
    num_seqs: usize,
    num_scored: usize,
    table_width: usize,
    // Per row.
    tokens: Vec<u32>,
    positions: Vec<u32>,
    slots: Vec<u32>,
    owners: Vec<u32>,
    state_writes: Vec<u32>,
    // Per sequence.
    first_rows: Vec<u32>,
    query_lens: Vec<u32>,
    state_reads: Vec<u32>,
    // (sequences, table_width)
    block_tables: Vec<u32>,
    // Per scored position.
    scored: Vec<u32>,
}

impl StepLayout {
    /// Empty buffers of a shape.
    pub fn new(shape: LayoutShape) -> StepLayout {
        StepLayout {
            shape,
            ..StepLayout::default()
        }
    }

    /// Lays out the parts of a plan that was checked. `tokens` holds what each query token stands for, of one
    /// sequence after another.
    ///
    /// # Panics
    /// If there is not one token for each query token, or a block table does not cover its positions.
    pub fn lay_out(&mut self, seqs: &[SeqPlan], tokens: &[TokenId]) {
        let num_query: usize = seqs.iter().map(|seq| seq.query.len()).sum();
        assert_eq!(num_query, tokens.len(), "one token per query token");
        self.resize(seqs, num_query);
        let mut tokens = tokens.iter();
        let (mut row, mut scored_at) = (0, 0);
        for (seq_idx, seq) in seqs.iter().enumerate() {
            self.first_rows[seq_idx] = row as u32;
            self.query_lens[seq_idx] = seq.query.len() as u32;
            self.state_reads[seq_idx] = seq.rows.read.map_or(NO_ID, |row| row.0);
            let table = &mut self.block_tables[seq_idx * self.table_width..];
            for (to, block) in table.iter_mut().zip(&seq.block_table) {
                *to = block.0;
            }
            for write in &seq.rows.writes {
                self.state_writes[row + write.query_idx as usize] = write.row.0;
            }
            for scored in &seq.scored {
                self.scored[scored_at] = row as u32 + scored.query_idx;
                scored_at += 1;
            }
            for (pos, token) in (seq.start.0..seq.end().0).zip(tokens.by_ref()) {
                let (block, offset) = seq.slot(Pos(pos));
                self.tokens[row] = token.0;
                self.positions[row] = pos;
                self.slots[row] = block.0 * BLOCK_LEN + offset;
                self.owners[row] = seq_idx as u32;
                row += 1;
            }
        }
    }

    /// Buffers of the step's size, with nothing in them: what an earlier step left is gone.
    fn resize(&mut self, seqs: &[SeqPlan], num_rows: usize) {
        let num_scored = seqs.iter().map(|seq| seq.scored.len()).sum();
        let longest = seqs.iter().map(|seq| seq.block_table.len()).max();
        let (size, seqs_size, scored_size, width) = match self.shape {
            LayoutShape::Exact => (num_rows, seqs.len(), num_scored, longest.unwrap_or(0)),
            LayoutShape::Fixed {
                query_tokens_max,
                seq_len_max,
            } => {
                // Each sequence has a row at least, and no row is scored twice.
                let size = batch_size(num_rows, query_tokens_max as usize);
                (size, size, size, seq_len_max.div_ceil(BLOCK_LEN) as usize)
            }
        };
        (self.num_rows, self.num_seqs, self.num_scored) = (num_rows, seqs.len(), num_scored);
        self.table_width = width.max(longest.unwrap_or(0));
        let rows = [
            &mut self.tokens,
            &mut self.positions,
            &mut self.slots,
            &mut self.owners,
            &mut self.state_writes,
        ];
        let of_seqs = [
            &mut self.first_rows,
            &mut self.query_lens,
            &mut self.state_reads,
        ];
        let tables = (&mut self.block_tables, seqs_size * self.table_width);
        let sizes = rows.into_iter().map(|buffer| (buffer, size));
        let sizes = sizes.chain(of_seqs.into_iter().map(|buffer| (buffer, seqs_size)));
        for (buffer, size) in sizes.chain([tables, (&mut self.scored, scored_size)]) {
            buffer.clear();
            buffer.resize(size, NO_ID);
        }
    }

    /// The shape that buffers have.
    pub fn shape(&self) -> LayoutShape {
        self.shape
    }

    /// Rows without padding.
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Rows with padding: what a kernel that treats rows one by one is given.
    pub fn padded_rows(&self) -> usize {
        self.tokens.len()
    }

    /// Sequences without padding.
    pub fn num_seqs(&self) -> usize {
        self.num_seqs
    }

    /// Scored positions without padding.
    pub fn num_scored(&self) -> usize {
        self.num_scored
    }

    /// The row of each scored position, of one sequence after another; padding last.
    pub fn scored(&self) -> &[u32] {
        &self.scored
    }

    /// The token of each row; padding last, as in all that follows.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The position of each row in its sequence.
    pub fn positions(&self) -> &[u32] {
        &self.positions
    }

    /// Where each row's key and value lie: 64 times the block, and the offset in it.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// The sequence of each row, counted from 0 in this step.
    pub fn owners(&self) -> &[u32] {
        &self.owners
    }

    /// The row of recurrent state that receives the state after each token, where there is one.
    pub fn state_writes(&self) -> &[u32] {
        &self.state_writes
    }

    /// The row of recurrent state that each sequence goes on from, where there is one.
    pub fn state_reads(&self) -> &[u32] {
        &self.state_reads
    }

    /// The first row of each sequence.
    pub fn first_rows(&self) -> &[u32] {
        &self.first_rows
    }

    /// How many rows each sequence has.
    pub fn query_lens(&self) -> &[u32] {
        &self.query_lens
    }

    /// The block tables, (sequences, [`table_width`](StepLayout::table_width)).
    pub fn block_tables(&self) -> &[u32] {
        &self.block_tables
    }

    /// Blocks that a table has room for.
    pub fn table_width(&self) -> usize {
        self.table_width
    }

    /// The rows of a sequence that is no padding.
    pub fn rows(&self, seq_idx: usize) -> Range<usize> {
        let first = self.first_rows[seq_idx] as usize;
        first..first + self.query_lens[seq_idx] as usize
    }

    /// The row that a sequence goes on from.
    pub fn state_read(&self, seq_idx: usize) -> Option<RowId> {
        id(self.state_reads[seq_idx]).map(RowId)
    }

    /// The row that receives the state after a row's token.
    pub fn state_write(&self, row: usize) -> Option<RowId> {
        id(self.state_writes[row]).map(RowId)
    }

    /// A row's block and the offset in it; none for padding.
    pub fn slot(&self, row: usize) -> Option<(BlockId, u32)> {
        id(self.slots[row]).map(|slot| (BlockId(slot / BLOCK_LEN), slot % BLOCK_LEN))
    }

    /// The block that holds a position of a sequence, and the offset in it.
    ///
    /// # Panics
    /// If the sequence has no such block.
    pub fn slot_at(&self, seq_idx: usize, pos: Pos) -> (BlockId, u32) {
        let block = self.block_table(seq_idx)[(pos.0 / BLOCK_LEN) as usize];
        assert_ne!(block, NO_ID, "position {pos} has no block");
        (BlockId(block), pos.0 % BLOCK_LEN)
    }

    /// A sequence's block table, with padding at its end.
    pub fn block_table(&self, seq_idx: usize) -> &[u32] {
        &self.block_tables[seq_idx * self.table_width..][..self.table_width]
    }
}

fn id(id: u32) -> Option<u32> {
    (id != NO_ID).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QueryToken, RowPlan, RowWrite, SamplingParams, ScoredPosition, SeqId};
    use std::{vec, vec::Vec};

    fn part(start: u32, num_query: u32, blocks: &[u32], rows: (Option<u32>, &[u32])) -> SeqPlan {
        SeqPlan {
            seq: SeqId(u64::from(start)),
            start: Pos(start),
            query: vec![QueryToken::Known(TokenId(0)); num_query as usize],
            num_drafts: 0,
            block_table: blocks.iter().copied().map(BlockId).collect(),
            rows: RowPlan {
                read: rows.0.map(RowId),
                writes: (0..)
                    .zip(rows.1)
                    .map(|(back, &row)| RowWrite {
                        query_idx: num_query - rows.1.len() as u32 + back,
                        row: RowId(row),
                    })
                    .collect(),
            },
            scored: vec![ScoredPosition {
                query_idx: num_query - 1,
                mask: None,
            }],
            sampling: SamplingParams::greedy(),
            counts: Vec::new(),
        }
    }

    #[test]
    fn sizes_are_few_and_large_enough() {
        let sizes: Vec<usize> = (1..=100)
            .map(|num_rows| batch_size(num_rows, 100))
            .collect();
        assert!(sizes.is_sorted());
        assert!((1..=100).all(|num_rows| sizes[num_rows - 1] >= num_rows));
        let mut different = sizes;
        different.dedup();
        assert_eq!(different, [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 100]);
        assert_eq!(batch_size(129, 512), 192);
        assert_eq!(batch_size(600, 512), 768, "more than was promised");
    }

    #[test]
    fn padding_is_poison_and_the_rest_is_the_same_in_both_shapes() {
        let seqs = [
            part(0, 3, &[4], (None, &[7])),
            part(63, 2, &[2, 9], (Some(5), &[1, 6])),
        ];
        let tokens: Vec<TokenId> = (30..35).map(TokenId).collect();
        let mut exact = StepLayout::new(LayoutShape::Exact);
        exact.lay_out(&seqs, &tokens);
        let mut fixed = StepLayout::new(LayoutShape::Fixed {
            query_tokens_max: 64,
            seq_len_max: 256,
        });
        // A larger step before leaves nothing behind.
        let larger = [part(10, 40, &[1], (Some(0), &[3]))];
        fixed.lay_out(&larger, &[TokenId(1); 40]);
        assert_eq!((fixed.num_rows(), fixed.padded_rows()), (40, 48));
        fixed.lay_out(&seqs, &tokens);
        assert_eq!((fixed.num_rows(), fixed.padded_rows()), (5, 8));
        let arrays = |of: &StepLayout| {
            [
                of.tokens().to_vec(),
                of.positions().to_vec(),
                of.slots().to_vec(),
                of.owners().to_vec(),
                of.state_writes().to_vec(),
                of.state_reads().to_vec(),
                of.first_rows().to_vec(),
                of.query_lens().to_vec(),
                of.scored().to_vec(),
            ]
        };
        for (exact, fixed) in arrays(&exact).iter().zip(arrays(&fixed)) {
            assert_eq!(exact[..], fixed[..exact.len()]);
            assert_eq!(fixed.len(), 8);
            assert!(fixed[exact.len()..].iter().all(|&id| id == NO_ID));
        }
        assert_eq!(exact.tokens(), [30, 31, 32, 33, 34]);
        assert_eq!(exact.positions(), [0, 1, 2, 63, 64]);
        assert_eq!(exact.slots(), [256, 257, 258, 191, 576]);
        assert_eq!(exact.state_writes(), [NO_ID, NO_ID, 7, 1, 6]);
        assert_eq!(exact.state_reads(), [NO_ID, 5]);
        assert_eq!(exact.scored(), [2, 4]);
        assert_eq!(exact.block_table(1), [2, 9]);
        assert_eq!(fixed.block_table(1), [2, 9, NO_ID, NO_ID]);
        assert_eq!((exact.rows(1), exact.num_seqs()), (3..5, 2));
        assert_eq!(fixed.slot(4), Some((BlockId(9), 0)));
        assert_eq!(fixed.slot(5), None);
        assert_eq!(fixed.slot_at(1, Pos(62)), (BlockId(2), 62));
    }
}
