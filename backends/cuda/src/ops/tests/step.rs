//! Steps of all kinds, laid out as kernels read them: several sequences, padding, sequences without state, rows of
//! state written after any token.

use super::{Case, Rng};
use crate::memory::Ptr;
use lockstep_step::{
    BLOCK_LEN, BlockId, LayoutShape, Pos, QueryToken, RowId, RowPlan, RowWrite, SamplingParams,
    SeqId, SeqPlan, StepLayout, TokenId,
};

/// A step and how much of everything there is.
pub(super) struct Step {
    pub(super) layout: StepLayout,
    pub(super) num_blocks: usize,
    pub(super) num_state_rows: usize,
}

/// The layout's buffers on the device.
#[derive(Clone, Copy)]
pub(super) struct OnDevice {
    pub(super) positions: Ptr<u32>,
    pub(super) slots: Ptr<u32>,
    pub(super) owners: Ptr<u32>,
    pub(super) tables: Ptr<u32>,
    pub(super) first_rows: Ptr<u32>,
    pub(super) query_lens: Ptr<u32>,
    pub(super) state_reads: Ptr<u32>,
    pub(super) state_writes: Ptr<u32>,
}

impl Step {
    /// Of one to four sequences, each of `query_max` tokens at most and with at most `start_max` before them.
    pub(super) fn random(rng: &mut Rng, start_max: usize, query_max: usize) -> Step {
        let num_seqs = rng.between(1, 4);
        let lens: Vec<(u32, u32)> = (0..num_seqs)
            .map(|_| {
                let start = if rng.below(3) == 0 {
                    0
                } else {
                    rng.below(start_max + 1)
                };
                (start as u32, rng.between(1, query_max) as u32)
            })
            .collect();
        Step::of(rng, &lens)
    }

    /// Of sequences with these starts and query lengths.
    pub(super) fn of(rng: &mut Rng, lens: &[(u32, u32)]) -> Step {
        let blocks_of = |&(start, len): &(u32, u32)| (start + len).div_ceil(BLOCK_LEN);
        let num_blocks = lens.iter().map(blocks_of).sum::<u32>() + 2;
        let num_query: u32 = lens.iter().map(|(_, len)| len).sum();
        let num_state_rows = num_query + lens.len() as u32;
        let mut blocks: Vec<u32> = (0..num_blocks).collect();
        let mut state_rows: Vec<u32> = (0..num_state_rows).collect();
        rng.shuffle(&mut blocks);
        rng.shuffle(&mut state_rows);
        let mut seqs = Vec::new();
        for (idx, &(start, len)) in lens.iter().enumerate() {
            let rest = blocks.split_off(blocks_of(&(start, len)) as usize);
            let table = std::mem::replace(&mut blocks, rest);
            let read = (start > 0).then(|| RowId(state_rows.pop().expect("a row to read")));
            // Often the last token alone, as in a plain step, but any may be kept.
            let only_last = rng.flip();
            let mut writes = Vec::new();
            for query_idx in 0..len {
                if query_idx + 1 == len && rng.below(4) > 0 || !only_last && rng.flip() {
                    let row = RowId(state_rows.pop().expect("a row to write"));
                    writes.push(RowWrite { query_idx, row });
                }
            }
            seqs.push(SeqPlan {
                seq: SeqId(idx as u64),
                start: Pos(start),
                query: vec![QueryToken::Known(TokenId(1)); len as usize],
                num_drafts: 0,
                block_table: table.into_iter().map(BlockId).collect(),
                rows: RowPlan { read, writes },
                scored: Vec::new(),
                sampling: SamplingParams::greedy(),
                counts: Vec::new(),
            });
        }
        let longest = lens.iter().map(|(start, len)| start + len).max();
        let mut layout = StepLayout::new(if rng.below(3) == 0 {
            LayoutShape::Exact
        } else {
            LayoutShape::Fixed {
                query_tokens_max: num_query + 40,
                seq_len_max: longest.unwrap_or(0) + 100,
            }
        });
        layout.lay_out(&seqs, &vec![TokenId(1); num_query as usize]);
        Step {
            layout,
            num_blocks: num_blocks as usize,
            num_state_rows: num_state_rows as usize,
        }
    }

    pub(super) fn num_rows(&self) -> usize {
        self.layout.padded_rows()
    }

    /// Sequences with padding.
    pub(super) fn padded_seqs(&self) -> usize {
        self.layout.first_rows().len()
    }

    /// The sequence of a row and the row's place in its query; none for padding.
    pub(super) fn owner(&self, row: usize) -> Option<(usize, usize)> {
        let owner = self.layout.owners()[row];
        (row < self.layout.num_rows()).then(|| {
            let seq = owner as usize;
            (seq, row - self.layout.rows(seq).start)
        })
    }

    pub(super) fn upload(&self, case: &mut Case) -> OnDevice {
        let layout = &self.layout;
        OnDevice {
            positions: case.filled(layout.positions()),
            slots: case.filled(layout.slots()),
            owners: case.filled(layout.owners()),
            tables: case.filled(layout.block_tables()),
            first_rows: case.filled(layout.first_rows()),
            query_lens: case.filled(layout.query_lens()),
            state_reads: case.filled(layout.state_reads()),
            state_writes: case.filled(layout.state_writes()),
        }
    }

    /// Replaces what padding rows hold of a (rows, width) buffer by zeros, as an embedding of padding does.
    pub(super) fn zero_padding(&self, buffer: &mut [f32], width: usize) {
        buffer[self.layout.num_rows() * width..].fill(0.0);
    }
}
