//! RMS norms of whole rows.

use super::shape;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;

kernel! {
    /// `out[i] = norm(x[rows[i]])`; all rows in order where `rows` is null. `faults` may be null.
    pub(crate) RmsNorm = "rms_norm" in "norm" {
        out: Ptr<f32>, x: Ptr<f32>, rows: Ptr<u32>, weight: Ptr<f32>, eps: f32, n: i32,
        faults: Ptr<u32>, op: u32,
    }
}

impl RmsNorm {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        queue.launch(self, shape([num_rows, 1, 1], 256))
    }
}

kernel! {
    /// As [`RmsNorm`], quantised for a linear layer; `out` may be null.
    pub(crate) RmsNormQuantize = "rms_norm_quantize" in "norm" {
        q: Ptr<i8>, scales: Ptr<f32>, out: Ptr<f32>, x: Ptr<f32>, rows: Ptr<u32>,
        weight: Ptr<f32>, eps: f32, m: i32, n: i32, faults: Ptr<u32>, op: u32,
    }
}

impl RmsNormQuantize {
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        queue.launch(
            self,
            shape([(self.m as usize).next_multiple_of(16), 1, 1], 256),
        )
    }
}
