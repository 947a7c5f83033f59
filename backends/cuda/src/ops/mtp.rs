//! What a checkpoint's drafting head is given, and what it keeps.

use super::shape;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;

kernel! {
    /// Pairs of a token's embedding and of what stands before it, both normed. `own` may be null.
    pub(crate) MtpEnter = "mtp_enter" in "mtp" {
        pairs: Ptr<f32>, embedded: Ptr<f32>, within: Ptr<f32>, own: Ptr<f32>, kept: Ptr<f32>,
        token_norm: Ptr<f32>, hidden_norm: Ptr<f32>, positions: Ptr<u32>, owners: Ptr<u32>,
        first_rows: Ptr<u32>, tables: Ptr<u32>, table_width: i32, eps: f32, n: i32,
    }
}

impl MtpEnter {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        queue.launch(self, shape([2, num_rows, 1], 256))
    }
}

kernel! {
    /// Rows to their slots.
    pub(crate) KeepRows = "keep_rows" in "mtp" {
        kept: Ptr<f32>, x: Ptr<f32>, slots: Ptr<u32>, n: i32,
    }
}

impl KeepRows {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        queue.launch(
            self,
            shape([num_rows, (self.n as usize).div_ceil(256), 1], 256),
        )
    }
}

kernel! {
    /// Chosen rows, one after another.
    pub(crate) GatherRows = "gather_rows" in "mtp" {
        out: Ptr<f32>, x: Ptr<f32>, rows: Ptr<u32>, n: i32,
    }
}

impl GatherRows {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        queue.launch(
            self,
            shape([num_rows, (self.n as usize).div_ceil(256), 1], 256),
        )
    }
}
