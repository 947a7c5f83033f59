//! Log-probabilities of raw rows of logits.

use super::draw::DrawParams;
use super::shape;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;

/// The most tokens that can be listed besides the drawn one.
pub(crate) const TOP_LOGPROBS_MAX: usize = 20;

kernel! {
    /// Of the drawn token, and of as many of the first of the ranking as a position asks for.
    pub(crate) Logprobs = "logprobs" in "logprobs" {
        drawn_logprobs: Ptr<f32>, top_tokens: Ptr<u32>, top_logprobs: Ptr<f32>, drawn: Ptr<u32>,
        params: Ptr<DrawParams>, logits: Ptr<f32>, vocab: i32,
    }
}

impl Logprobs {
    pub(crate) fn launch(&self, queue: &Queue, num_positions: usize) -> Result<(), DeviceError> {
        queue.launch(self, shape([num_positions, 1, 1], 512))
    }
}
