//! The gated delta net: a causal convolution over queries, keys and values, then a recurrent state per value
//! head. Everything that it knows about the past comes from the row that the plan names.

use super::{Scratch, Step};
use crate::Linear;
#[cfg(planted)]
use crate::batch::Batch;
use crate::cache::{LayerRows, StateRows, StateShape};
use crate::disjoint::{Disjoint, for_rows, sized};
use crate::kernels::{
    self, CONV_TAPS_MAX, ConvSilu, DeltaGates, DeltaStep, GatedRmsNorm, HEAD_DIM_MAX, L2Norm,
};
use crate::load::{Loader, Norm};
use crate::watch::Watch;
use lockstep_numerics::elementary::exp;
use lockstep_package::blueprint::DeltaNetParts;
use lockstep_package::{LinearConfig, LoadError, ensure_range};
use lockstep_step::planted;

/// Added to the sum of squares of a query or a key.
const L2_EPS: f32 = 1e-6;
/// Rows that one task of the convolution takes.
const ROWS_PER_TASK: usize = 4;

pub(crate) struct DeltaNet {
    // Outputs: queries, keys, values (the channels of the convolution), z.
    project: Linear,
    // Outputs: b, a. By the f32 rule always: decays feed back token by token, and these are few rows.
    project_gates: Linear,
    out: Linear,
    norm: Norm,
    // (taps, channels), oldest tap first.
    conv: Vec<f32>,
    // Stands for inputs before the first token.
    zeros: Vec<f32>,
    // exp(A_log) per value head.
    rate: Vec<f32>,
    bias: Vec<f32>,
    dims: LinearConfig,
    query_scale: f32,
    // Index among the layers that have recurrent state.
    state_layer: usize,
}

/// The shape of a row's state in one layer.
pub(crate) fn state_shape(dims: &LinearConfig) -> StateShape {
    StateShape {
        conv_taps: dims.conv_kernel - 1,
        channels: channels(dims),
        num_heads: dims.num_value_heads,
        key_dim: dims.key_head_dim,
        value_dim: dims.value_head_dim,
    }
}

fn channels(dims: &LinearConfig) -> usize {
    2 * dims.num_key_heads * dims.key_head_dim + dims.num_value_heads * dims.value_head_dim
}

/// The buffers of a step in this layer.
struct Buffers<'a> {
    // (rows, outputs of `project`)
    projected: &'a [f32],
    // (rows, channels): after the convolution.
    mixed: &'a [f32],
    // (rows, betas then decays)
    gates: &'a [f32],
}

/// Writes a window of inputs, oldest first, as the convolution's state.
fn keep_window(inputs: &[&[f32]], state: &mut [f32]) {
    for (to, from) in state
        .chunks_exact_mut(state.len() / inputs.len())
        .zip(inputs)
    {
        to.copy_from_slice(from);
    }
}

/// The sequences whose query is shorter than what the step before it accepted, which a step may well be. Notes beside
/// each row that is written what is accepted where its sequence goes on from there.
#[cfg(planted)]
fn guarded(batch: &Batch<'_>, rows: &mut StateRows) -> Vec<usize> {
    let mut guarded = Vec::new();
    for seq_idx in 0..batch.num_seqs() {
        let query = batch.rows(seq_idx);
        let read = batch.state_read(seq_idx);
        if read.is_some_and(|read| *rows.accepted(read) > query.len()) {
            guarded.push(seq_idx);
        }
        let mut num_scored = 0;
        for row in query {
            num_scored += usize::from(batch.is_scored(row));
            if let Some(write) = batch.state_write(row) {
                *rows.accepted(write) = num_scored.max(1);
            }
        }
    }
    guarded
}

impl DeltaNet {
    /// `state_layer` is its index among the layers that have recurrent state.
    pub(crate) fn load(
        loader: &Loader<'_>,
        parts: &DeltaNetParts,
        state_layer: usize,
    ) -> Result<DeltaNet, LoadError> {
        let dims = parts.dims;
        ensure_range(
            "linear_conv_kernel_dim",
            dims.conv_kernel,
            1..=CONV_TAPS_MAX,
        )?;
        ensure_range(
            "linear_value_head_dim",
            dims.value_head_dim,
            1..=HEAD_DIM_MAX,
        )?;
        let reader = &loader.reader;
        let log_rate = reader.vector(&parts.log_rate)?;
        Ok(DeltaNet {
            project: loader.linear(&parts.project)?,
            project_gates: loader.linear(&parts.gates)?,
            out: loader.linear(&parts.out)?,
            norm: loader.norm(&parts.norm)?,
            conv: reader.taps(&parts.conv, dims.conv_kernel)?,
            zeros: vec![0.0; channels(&dims)],
            rate: log_rate.into_iter().map(exp).collect(),
            bias: reader.vector(&parts.bias)?,
            dims,
            query_scale: 1.0 / (dims.key_head_dim as f32).sqrt(),
            state_layer,
        })
    }

    /// Bytes of weights that a step reads.
    pub(crate) fn num_bytes(&self) -> usize {
        self.project.num_bytes() + self.project_gates.num_bytes() + self.out.num_bytes()
    }

    fn channels(&self) -> usize {
        self.zeros.len()
    }

    fn num_values(&self) -> usize {
        self.dims.num_value_heads * self.dims.value_head_dim
    }

    /// `x` and `out` are (rows, hidden). Reads and writes the rows of state that the plan names.
    pub(crate) fn forward(
        &self,
        (step, watch): (&Step<'_>, &mut Watch),
        rows: &mut StateRows,
        scratch: &mut Scratch,
        x: &[f32],
        out: &mut [f32],
    ) {
        let (isa, pool, m) = (step.machine.isa, step.machine.pool, step.batch.num_rows());
        #[cfg(planted)]
        let guarded = guarded(step.batch, rows);
        let rows = rows.layer(self.state_layer);
        let projected = sized(&mut scratch.projected, m * self.project.n());
        self.project.forward(isa, pool, x, m, projected);
        watch.ended(step.machine, "qkvz", self.project.n(), projected);
        let mixed = sized(&mut scratch.mixed, m * self.channels());
        let gates = sized(&mut scratch.gates, m * 2 * self.dims.num_value_heads);
        self.project_gates.forward(isa, pool, x, m, gates);
        self.convolve(step, &rows, projected, mixed, gates);
        #[cfg(planted)]
        self.spoil_gates(step.batch, gates);
        #[cfg(planted)]
        self.zero_guarded(step.batch, &guarded, mixed);
        let num_gates = 2 * self.dims.num_value_heads;
        watch.ended(step.machine, "conv", self.channels(), mixed);
        watch.ended(step.machine, "gates", num_gates, gates);
        let inner = sized(&mut scratch.inner, m * self.num_values());
        let buffers = Buffers {
            projected,
            mixed,
            gates,
        };
        self.recur(step, &rows, &buffers, inner);
        watch.ended(step.machine, "recurrence", self.num_values(), inner);
        self.out.forward(isa, pool, inner, m, out);
        watch.ended(step.machine, "delta_net_out", self.out.n(), out);
    }

    /// Per row: convolution, norms of queries and keys, gates, and the convolution's state where a row of
    /// state is to be written after this token.
    fn convolve(
        &self,
        step: &Step<'_>,
        rows: &LayerRows<'_>,
        projected: &[f32],
        mixed: &mut [f32],
        gates: &mut [f32],
    ) {
        let (isa, batch) = (step.machine.isa, step.batch);
        let (channels, width) = (self.channels(), self.project.n());
        let (heads, taps) = (self.dims.num_value_heads, self.dims.conv_kernel);
        let key_width = self.dims.num_key_heads * self.dims.key_head_dim;
        let gates = Disjoint::new(gates);
        for_rows(
            step.machine.pool,
            mixed,
            channels,
            ROWS_PER_TASK,
            &|row, out| {
                // Padding is like the first token of a sequence that keeps nothing.
                let (query_idx, read) = match batch.owner(row) {
                    Some((seq_idx, query_idx)) => (query_idx, batch.state_read(seq_idx)),
                    None => (0, None),
                };
                // SAFETY: a row that is read in a step is never written in it, which check_plan holds.
                let past = read.map(|read| unsafe { rows.conv(read) });
                // The input `back` tokens before this one: from this step, from the row, or nothing yet.
                let input = |back: usize| -> &[f32] {
                    // Planted: ggml-org/llama.cpp#29002.
                    if back <= query_idx || planted!(CoBatchChangesConvState) && back <= row {
                        &projected[(row - back) * width..][..channels]
                    } else {
                        let age = back - query_idx;
                        match past {
                            Some(past) => &past[(taps - 1 - age) * channels..][..channels],
                            None => &self.zeros,
                        }
                    }
                };
                let mut inputs: [&[f32]; CONV_TAPS_MAX] = [&[]; CONV_TAPS_MAX];
                for (tap, slot) in inputs[..taps].iter_mut().enumerate() {
                    *slot = input(taps - 1 - tap);
                }
                let inputs = &inputs[..taps];
                if let Some(write) = batch.state_write(row) {
                    // SAFETY: a row that is written is named once in a step, and this token has one task.
                    let state = unsafe { rows.conv_mut(write) };
                    keep_window(&inputs[1..], state);
                    #[cfg(planted)]
                    self.spoil_window(batch, row, projected, state);
                }
                kernels::run(
                    isa,
                    ConvSilu {
                        inputs,
                        weights: &self.conv,
                        out: &mut *out,
                    },
                );
                let (queries, rest) = out.split_at_mut(key_width);
                for (part, scale) in [(queries, self.query_scale), (&mut rest[..key_width], 1.0)] {
                    for x in part.chunks_exact_mut(self.dims.key_head_dim) {
                        kernels::run(
                            isa,
                            L2Norm {
                                x,
                                eps: L2_EPS,
                                scale,
                            },
                        );
                    }
                }
                // SAFETY: each row belongs to one task.
                let gates = unsafe { gates.slice(row * 2 * heads, 2 * heads) };
                let (rate, bias) = (&self.rate, &self.bias);
                kernels::run(isa, DeltaGates { gates, rate, bias });
            },
        );
    }

    /// Takes the last gate of a chunk that is not full from behind its end.
    #[cfg(planted)]
    fn spoil_gates(&self, batch: &Batch<'_>, gates: &mut [f32]) {
        let heads = self.dims.num_value_heads;
        for rows in (0..batch.num_seqs()).map(|seq_idx| batch.rows(seq_idx)) {
            // Planted: gittensor-ai-lab/sparkinfer#604.
            if planted!(ChunkTailGateZero) && rows.len() > 1 && rows.len() % 8 != 0 {
                let last = (rows.end - 1) * 2 * heads;
                gates[last + heads..last + 2 * heads].fill(1.0);
            }
        }
    }

    /// Takes what the convolution computed for these sequences for invalid.
    #[cfg(planted)]
    fn zero_guarded(&self, batch: &Batch<'_>, guarded: &[usize], mixed: &mut [f32]) {
        for rows in guarded.iter().map(|&seq_idx| batch.rows(seq_idx)) {
            // Planted: vllm-project/vllm-ascend#14161.
            if planted!(AcceptCountZeroesConv) {
                mixed[rows.start * self.channels()..rows.end * self.channels()].fill(0.0);
            }
        }
    }

    /// Keeps another window than that of a row's token.
    #[cfg(planted)]
    fn spoil_window(&self, batch: &Batch<'_>, row: usize, projected: &[f32], state: &mut [f32]) {
        let Some((seq_idx, query_idx)) = batch.owner(row) else {
            return;
        };
        let (channels, width, rows) = (self.channels(), self.project.n(), batch.rows(seq_idx));
        let num_kept = self.dims.conv_kernel - 1;
        for (idx, kept) in state.chunks_exact_mut(channels).enumerate() {
            let back = num_kept - 1 - idx;
            // Planted: fla-org/flash-linear-attention#1141.
            let is_short = rows.len() > 1 && rows.len() < num_kept;
            if planted!(ConvShortChunkState) && is_short && back > query_idx {
                kept.fill(0.0);
            }
            // Planted: vllm-project/vllm#50272.
            if planted!(ConvWindowNoRollbackRoom)
                && batch.is_scored(row)
                && let Some(last) = (rows.end - 1)
                    .checked_sub(back)
                    .filter(|&last| last >= rows.start)
            {
                kept.copy_from_slice(&projected[last * width..][..channels]);
            }
        }
    }

    /// Per sequence and value head: the recurrence, token by token. `out` is (rows, values).
    fn recur(&self, step: &Step<'_>, rows: &LayerRows<'_>, buffers: &Buffers<'_>, out: &mut [f32]) {
        let heads = self.dims.num_value_heads;
        step.batch.poison_padding(out, self.num_values());
        let out = Disjoint::new(out);
        step.machine
            .pool
            .run(step.batch.num_seqs() * heads, &|task| {
                // SAFETY: each pair of sequence and head is one task, and no two sequences write one row.
                unsafe { self.recur_head(step, rows, buffers, (task / heads, task % heads), &out) };
            });
    }

    /// # Safety
    /// No other task holds this head of a row that this sequence writes, nor this head of its outputs.
    unsafe fn recur_head(
        &self,
        step: &Step<'_>,
        rows: &LayerRows<'_>,
        buffers: &Buffers<'_>,
        (seq_idx, head): (usize, usize),
        out: &Disjoint<'_>,
    ) {
        let (isa, batch, dims) = (step.machine.isa, step.batch, &self.dims);
        let (keys, values) = (dims.key_head_dim, dims.value_head_dim);
        let key_head = head / (dims.num_value_heads / dims.num_key_heads);
        let writes = batch.rows(seq_idx);
        let writes = writes.filter_map(|row| Some((row, batch.state_write(row)?)));
        let mut writes = writes.peekable();
        let mut held = Vec::new();
        // The state is computed in the first row that is written, and from there into each later one.
        let mut state: &mut [f32] = match writes.peek() {
            // SAFETY: passed on.
            Some(&(_, write)) => unsafe { rows.head_mut(write, head) },
            None => {
                held.resize(keys * values, 0.0);
                &mut held
            }
        };
        // SAFETY: a row that is read in a step is never written in it.
        let read = |row| unsafe { rows.head(row, head) };
        let mut from: Option<&[f32]> = batch.state_read(seq_idx).map(read);
        if from.is_none() {
            state.fill(0.0);
        }
        let core = &mut [0.0; HEAD_DIM_MAX][..values];
        for row in batch.rows(seq_idx) {
            let mixed = &buffers.mixed[row * self.channels()..(row + 1) * self.channels()];
            let key_width = dims.num_key_heads * keys;
            let gates = &buffers.gates[row * 2 * dims.num_value_heads..];
            kernels::run(
                isa,
                DeltaStep {
                    from: from.take(),
                    state: &mut *state,
                    query: &mixed[key_head * keys..][..keys],
                    key: &mixed[key_width + key_head * keys..][..keys],
                    value: &mixed[2 * key_width + head * values..][..values],
                    decay: gates[dims.num_value_heads + head],
                    beta: gates[head],
                    out: &mut *core,
                },
            );
            let gate_at = row * self.project.n() + self.channels() + head * values;
            kernels::run(
                isa,
                GatedRmsNorm {
                    x: core,
                    weight: &self.norm.weight,
                    gate: &buffers.projected[gate_at..gate_at + values],
                    eps: self.norm.eps,
                    // SAFETY: passed on.
                    out: unsafe { out.slice(row * self.num_values() + head * values, values) },
                },
            );
            if writes.next_if(|&(written, _)| written == row).is_some()
                && let Some(&(_, write)) = writes.peek()
            {
                // SAFETY: passed on; rows of one sequence differ from each other.
                let next = unsafe { rows.head_mut(write, head) };
                from = Some(state);
                state = next;
            }
        }
    }
}
