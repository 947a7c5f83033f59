//! A step as the device sees it: the arrays of a layout in one upload, and the buffers that it computes in. All
//! addresses are fixed for a number of rows, so that a graph recorded for it can be queued again.

use crate::CudaError;
use crate::memory::{Memory, Ptr, Region};
use crate::ops::quantize::quantized_len;
use lockstep_numerics::groups::groups;
use lockstep_step::{BLOCK_LEN, NO_ID, StepLayout};

/// The arrays of one step, by address. Sizes are those of the layout, padding included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrays {
    pub(crate) num_rows: usize,
    pub(crate) num_seqs: usize,
    pub(crate) num_scored: usize,
    pub(crate) table_width: usize,
    /// Blocks of the longest sequence, or more.
    pub(crate) blocks_max: usize,
    /// Per row: its token, where that is known; else which draw it is.
    pub(crate) known: Ptr<u32>,
    pub(crate) refs: Ptr<u32>,
    pub(crate) positions: Ptr<u32>,
    pub(crate) slots: Ptr<u32>,
    pub(crate) owners: Ptr<u32>,
    pub(crate) state_writes: Ptr<u32>,
    /// Per sequence.
    pub(crate) first_rows: Ptr<u32>,
    pub(crate) query_lens: Ptr<u32>,
    pub(crate) state_reads: Ptr<u32>,
    /// (sequences, table_width)
    pub(crate) tables: Ptr<u32>,
    /// Per scored position: its row.
    pub(crate) scored: Ptr<u32>,
}

/// Arrays with an entry per row, per sequence.
const PER_ROW: usize = 6;
const PER_SEQ: usize = 3;

/// How many numbers the arrays of a step have at most.
pub(crate) fn arrays_len(rows_max: usize, table_width: usize) -> usize {
    // No more sequences than rows, and no row is scored twice.
    rows_max * (PER_ROW + PER_SEQ + table_width + 1)
}

impl Arrays {
    /// The arrays of a layout, one after another from `at` on.
    pub(crate) fn of(layout: &StepLayout, at: Ptr<u32>) -> Arrays {
        let (num_rows, table_width) = (layout.padded_rows(), layout.table_width());
        let (num_seqs, num_scored) = (layout.first_rows().len(), layout.scored().len());
        let mut next = 0;
        let mut take = |len: usize| {
            next += len;
            at.at(next - len)
        };
        Arrays {
            num_rows,
            num_seqs,
            num_scored,
            table_width,
            blocks_max: blocks_max(layout),
            known: take(num_rows),
            refs: take(num_rows),
            positions: take(num_rows),
            slots: take(num_rows),
            owners: take(num_rows),
            state_writes: take(num_rows),
            first_rows: take(num_seqs),
            query_lens: take(num_seqs),
            state_reads: take(num_seqs),
            tables: take(num_seqs * table_width),
            scored: take(num_scored),
        }
    }
}

/// The most blocks that a row of the step looks at, up to a power of two, so that few graphs serve all lengths.
fn blocks_max(layout: &StepLayout) -> usize {
    let positions = &layout.positions()[..layout.num_rows()];
    let last = positions.iter().max().copied().unwrap_or(0);
    ((last / BLOCK_LEN + 1) as usize).next_power_of_two()
}

/// Writes the arrays of a layout in the order of [`Arrays::of`]. `refs` holds, per row, which draw its token is.
pub(crate) fn write_arrays(layout: &StepLayout, refs: &[u32], to: &mut [u32]) -> usize {
    let mut refs_padded = refs.to_vec();
    refs_padded.resize(layout.padded_rows(), NO_ID);
    let parts = [
        layout.tokens(),
        &refs_padded,
        layout.positions(),
        layout.slots(),
        layout.owners(),
        layout.state_writes(),
        layout.first_rows(),
        layout.query_lens(),
        layout.state_reads(),
        layout.block_tables(),
        layout.scored(),
    ];
    let mut len = 0;
    for part in parts {
        to[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    len
}

/// The widths of the buffers that layers share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Widths {
    pub(crate) hidden: usize,
    /// Outputs of a layer's first matrix.
    pub(crate) projected: usize,
    /// What a layer mixes.
    pub(crate) mixed: usize,
    /// Betas and decays.
    pub(crate) gates: usize,
    /// Inputs of a matrix.
    pub(crate) inputs: usize,
    /// Floats per row and block that attention keeps side by side.
    pub(crate) per_block: usize,
}

impl Widths {
    /// Wide enough for both.
    pub(crate) fn max(self, other: Widths) -> Widths {
        Widths {
            hidden: self.hidden.max(other.hidden),
            projected: self.projected.max(other.projected),
            mixed: self.mixed.max(other.mixed),
            gates: self.gates.max(other.gates),
            inputs: self.inputs.max(other.inputs),
            per_block: self.per_block.max(other.per_block),
        }
    }
}

/// Rows of attention whose blocks may be computed side by side, and blocks of them all.
const SPLIT_FLOATS: usize = 1 << 24;

/// What a step computes in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// What each row's token is.
    pub(crate) tokens: Ptr<u32>,
    /// Per row, the first operation whose outcome was not finite.
    pub(crate) faults: Ptr<u32>,
    pub(crate) x: Ptr<f32>,
    pub(crate) normed: Ptr<f32>,
    pub(crate) projected: Ptr<f32>,
    pub(crate) mixed: Ptr<f32>,
    pub(crate) core: Ptr<f32>,
    pub(crate) out: Ptr<f32>,
    pub(crate) gates: Ptr<f32>,
    /// Inputs of a matrix, quantised.
    pub(crate) quantized: Ptr<i8>,
    pub(crate) scales: Ptr<f32>,
    /// Blocks of attention side by side.
    pub(crate) split: Ptr<f32>,
    pub(crate) split_floats: usize,
}

impl Buffers {
    /// For steps of at most `rows` rows.
    pub(crate) fn claim(
        memory: &mut Memory,
        rows: usize,
        widths: Widths,
    ) -> Result<Buffers, CudaError> {
        let q = quantized_len(rows, widths.inputs);
        let scales = rows * groups(widths.inputs);
        let split_floats = SPLIT_FLOATS.min(rows * widths.per_block * 64);
        let mut floats = |what: &str, len: usize| memory.claim(Region::Buffers, what, len);
        Ok(Buffers {
            x: floats("hidden states", rows * widths.hidden)?,
            normed: floats("normed states", rows * widths.hidden)?,
            projected: floats("projections", rows * widths.projected)?,
            mixed: floats("mixed states", rows * widths.mixed)?,
            core: floats("inner states", rows * widths.mixed)?,
            out: floats("outputs of layers", rows * widths.hidden)?,
            gates: floats("gates", rows * widths.gates)?,
            scales: floats("scales of inputs", scales)?,
            split: floats("blocks of attention", split_floats)?,
            split_floats,
            quantized: memory.claim(Region::Buffers, "quantised inputs", q)?,
            tokens: memory.claim(Region::Buffers, "tokens", rows)?,
            faults: memory.claim(Region::Buffers, "faults", rows)?,
        })
    }
}
