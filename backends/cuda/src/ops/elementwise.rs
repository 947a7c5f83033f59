//! Operations in which each output depends on a few inputs.

use super::shape;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;
use lockstep_numerics::groups::groups;

kernel! {
    /// `x += y`, and notes rows that are not finite.
    pub(crate) AddCheck = "add_check" in "elementwise" {
        x: Ptr<f32>, y: Ptr<f32>, n: i32, faults: Ptr<u32>, op: u32,
    }
}

impl AddCheck {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        queue.launch(
            self,
            shape([num_rows, (self.n as usize).div_ceil(1024), 1], 256),
        )
    }
}

kernel! {
    /// `silu(gate) * up`.
    pub(crate) SiluMul = "silu_mul" in "elementwise" {
        out: Ptr<f32>, projected: Ptr<f32>, n: i32,
    }
}

impl SiluMul {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        queue.launch(
            self,
            shape([num_rows, (self.n as usize).div_ceil(256), 1], 256),
        )
    }
}

kernel! {
    /// As [`SiluMul`], quantised for a linear layer.
    pub(crate) SiluMulQuantize = "silu_mul_quantize" in "elementwise" {
        q: Ptr<i8>, scales: Ptr<f32>, projected: Ptr<f32>, m: i32, n: i32,
    }
}

impl SiluMulQuantize {
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        let warps = groups(self.n as usize).div_ceil(8);
        queue.launch(
            self,
            shape([(self.m as usize).next_multiple_of(16), warps, 1], 256),
        )
    }
}
