//! Quantises the inputs of a linear layer.

use super::shape;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;
use lockstep_numerics::groups::groups;

kernel! {
    /// Rows to int8 in groups of 128, in tiles of 16 rows and 16 bytes.
    pub(crate) Quantize = "quantize" in "quantize" {
        q: Ptr<i8>, scales: Ptr<f32>, x: Ptr<f32>, m: i32, k: i32,
    }
}

impl Quantize {
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        let warps = groups(self.k as usize).div_ceil(8);
        queue.launch(
            self,
            shape([(self.m as usize).next_multiple_of(16), warps, 1], 256),
        )
    }
}

/// Bytes of `m` quantised rows of `k` inputs.
pub(crate) fn quantized_len(m: usize, k: usize) -> usize {
    m.next_multiple_of(16) * k.next_multiple_of(16)
}
