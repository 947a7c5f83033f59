//! The gated delta net.

use super::{HEAD_DIM_MAX, shape};
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;

kernel! {
    /// Causal convolution, silu, norms of queries and keys, and the window where a row of state is written.
    pub(crate) Convolve = "convolve" in "delta" {
        mixed: Ptr<f32>, state: Ptr<f32>, projected: Ptr<f32>, weights: Ptr<f32>, owners: Ptr<u32>,
        first_rows: Ptr<u32>, state_reads: Ptr<u32>, state_writes: Ptr<u32>, query_scale: f32,
        state_len: i32, width: i32, channels: i32, taps: i32, num_key_heads: i32, key_dim: i32,
    }
}

impl Convolve {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        assert!(self.key_dim as usize <= HEAD_DIM_MAX);
        let heads = 2 * self.num_key_heads as usize;
        let values = self.channels as usize - heads * self.key_dim as usize;
        queue.launch(
            self,
            shape([heads + values.div_ceil(256), num_rows, 1], 256),
        )
    }
}

kernel! {
    /// Betas and decays, in place.
    pub(crate) DeltaGates = "delta_gates" in "delta" {
        gates: Ptr<f32>, rate: Ptr<f32>, bias: Ptr<f32>, num_rows: i32, num_heads: i32,
    }
}

impl DeltaGates {
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        let num_gates = (self.num_rows * self.num_heads) as usize;
        queue.launch(self, shape([num_gates.div_ceil(128), 1, 1], 128))
    }
}

kernel! {
    /// The recurrence over the rows of each sequence.
    pub(crate) DeltaNet = "delta_net" in "delta" {
        core: Ptr<f32>, state: Ptr<f32>, mixed: Ptr<f32>, gates: Ptr<f32>, first_rows: Ptr<u32>,
        query_lens: Ptr<u32>, state_reads: Ptr<u32>, state_writes: Ptr<u32>, state_len: i32,
        conv_len: i32, channels: i32, num_key_heads: i32, num_value_heads: i32, key_dim: i32,
        value_dim: i32,
    }
}

impl DeltaNet {
    pub(crate) fn launch(&self, queue: &Queue, num_seqs: usize) -> Result<(), DeviceError> {
        assert!(self.key_dim as usize <= HEAD_DIM_MAX);
        let columns = (self.value_dim as usize).div_ceil(32);
        queue.launch(
            self,
            shape([columns, self.num_value_heads as usize, num_seqs], 32),
        )
    }
}

kernel! {
    /// RMS norm per head, times `silu(gate)`, in place.
    pub(crate) GatedNorm = "gated_norm" in "delta" {
        x: Ptr<f32>, projected: Ptr<f32>, weight: Ptr<f32>, owners: Ptr<u32>, eps: f32, width: i32,
        gate_at: i32, value_dim: i32,
    }
}

impl GatedNorm {
    pub(crate) fn launch(
        &self,
        queue: &Queue,
        num_rows: usize,
        num_heads: usize,
    ) -> Result<(), DeviceError> {
        queue.launch(self, shape([num_heads, num_rows, 1], 64))
    }
}
