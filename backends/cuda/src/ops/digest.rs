//! The digest of each row of logits.

use super::shape;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;

kernel! {
    /// Adds to `digests`, which must be zeros, and notes rows that are not finite.
    pub(crate) LogitsDigest = "logits_digest" in "digest" {
        digests: Ptr<u64>, logits: Ptr<f32>, rows: Ptr<u32>, n: i32, faults: Ptr<u32>, op: u32,
    }
}

impl LogitsDigest {
    pub(crate) fn launch(&self, queue: &Queue, num_scored: usize) -> Result<(), DeviceError> {
        queue.launch(
            self,
            shape([num_scored, (self.n as usize).div_ceil(4096), 1], 256),
        )
    }
}
