//! The gated delta net: projections, the causal convolution, gates, the recurrence, its output norm, and back. What it
//! knows about the past comes from the rows of state that the plan names.

use super::Step;
use crate::memory::Ptr;
use crate::model::Kept;
use crate::ops::HEAD_DIM_MAX;
use crate::ops::delta::{self, Convolve, DeltaGates, GatedNorm};
use crate::step::Widths;
use crate::weights::{Loader, Matrix, Norm};
use crate::{CudaError, DeviceError};
use lockstep_numerics::elementary::exp;
use lockstep_package::blueprint::DeltaNetParts;
use lockstep_package::{LinearConfig, ensure_range};

/// Taps that a convolution may have, as on the CPU.
const CONV_TAPS_MAX: usize = 8;

pub(crate) struct DeltaNet {
    // Outputs: queries, keys, values (the channels of the convolution), z.
    project: Matrix,
    // Outputs: b, a.
    project_gates: Matrix,
    out: Matrix,
    norm: Norm,
    // (taps, channels), oldest tap first.
    conv: Ptr<f32>,
    // exp(A_log) per value head.
    rate: Ptr<f32>,
    bias: Ptr<f32>,
    dims: LinearConfig,
    query_scale: f32,
    // Index among the layers that have recurrent state.
    state_layer: usize,
}

/// Channels of the convolution (queries, keys, values), and floats of a row of state of one layer.
pub(crate) fn channels_and_state(dims: &LinearConfig) -> (usize, usize) {
    let channels =
        2 * dims.num_key_heads * dims.key_head_dim + dims.num_value_heads * dims.value_head_dim;
    let heads = dims.num_value_heads * dims.key_head_dim * dims.value_head_dim;
    (channels, (dims.conv_kernel - 1) * channels + heads)
}

impl DeltaNet {
    pub(crate) fn load(
        loader: &mut Loader<'_>,
        parts: &DeltaNetParts,
        state_layer: usize,
    ) -> Result<DeltaNet, CudaError> {
        let dims = parts.dims;
        ensure_range(
            "linear_conv_kernel_dim",
            dims.conv_kernel,
            1..=CONV_TAPS_MAX,
        )?;
        for (field, width) in [
            ("linear_value_head_dim", dims.value_head_dim),
            ("linear_key_head_dim", dims.key_head_dim),
        ] {
            ensure_range(field, width, 1..=HEAD_DIM_MAX)?;
        }
        let log_rate = loader.reader().vector(&parts.log_rate)?;
        let rate: Vec<f32> = log_rate.into_iter().map(exp).collect();
        let conv = loader.reader().taps(&parts.conv, dims.conv_kernel)?;
        let bias = loader.reader().vector(&parts.bias)?;
        Ok(DeltaNet {
            project: loader.matrix(&parts.project)?,
            project_gates: loader.matrix(&parts.gates)?,
            out: loader.matrix(&parts.out)?,
            norm: loader.norm(&parts.norm)?,
            conv: loader.vector(&parts.conv, &conv)?,
            rate: loader.vector(&parts.log_rate, &rate)?,
            bias: loader.vector(&parts.bias, &bias)?,
            dims,
            query_scale: 1.0 / (dims.key_head_dim as f32).sqrt(),
            state_layer,
        })
    }

    /// The matrix that the layer's input goes through first.
    pub(crate) fn first(&self) -> &Matrix {
        &self.project
    }

    pub(crate) fn widths(&self) -> Widths {
        Widths {
            projected: self.project.n,
            mixed: channels_and_state(&self.dims).0.max(self.out.k),
            gates: self.project_gates.n,
            inputs: self.out.k.max(self.project.k),
            ..Default::default()
        }
    }

    /// From the normed input, as floats too, to the outputs of the layer.
    pub(crate) fn forward(&self, step: &Step<'_>, kept: &Kept) -> Result<(), DeviceError> {
        let (queue, arrays, buffers) = (step.queue, step.arrays, step.buffers);
        let (m, dims) = (arrays.num_rows, &self.dims);
        let (channels, state_len) = channels_and_state(dims);
        let conv_len = (dims.conv_kernel - 1) * channels;
        let state = kept.state(self.state_layer);
        step.multiply(&self.project, buffers.normed, m, buffers.projected)?;
        step.multiply(&self.project_gates, buffers.normed, m, buffers.gates)?;
        Convolve {
            mixed: buffers.mixed,
            state,
            projected: buffers.projected,
            weights: self.conv,
            owners: arrays.owners,
            first_rows: arrays.first_rows,
            state_reads: arrays.state_reads,
            state_writes: arrays.state_writes,
            query_scale: self.query_scale,
            state_len: state_len as i32,
            width: self.project.n as i32,
            channels: channels as i32,
            taps: dims.conv_kernel as i32,
            num_key_heads: dims.num_key_heads as i32,
            key_dim: dims.key_head_dim as i32,
        }
        .launch(queue, m)?;
        DeltaGates {
            gates: buffers.gates,
            rate: self.rate,
            bias: self.bias,
            num_rows: m as i32,
            num_heads: dims.num_value_heads as i32,
        }
        .launch(queue)?;
        delta::DeltaNet {
            core: buffers.core,
            state,
            mixed: buffers.mixed,
            gates: buffers.gates,
            first_rows: arrays.first_rows,
            query_lens: arrays.query_lens,
            state_reads: arrays.state_reads,
            state_writes: arrays.state_writes,
            state_len: state_len as i32,
            conv_len: conv_len as i32,
            channels: channels as i32,
            num_key_heads: dims.num_key_heads as i32,
            num_value_heads: dims.num_value_heads as i32,
            key_dim: dims.key_head_dim as i32,
            value_dim: dims.value_head_dim as i32,
        }
        .launch(queue, arrays.num_seqs)?;
        GatedNorm {
            x: buffers.core,
            projected: buffers.projected,
            weight: self.norm.weight,
            owners: arrays.owners,
            eps: self.norm.eps,
            width: self.project.n as i32,
            gate_at: channels as i32,
            value_dim: dims.value_head_dim as i32,
        }
        .launch(queue, m, dims.num_value_heads)?;
        step.linear(&self.out, buffers.core, m, buffers.out)
    }
}
