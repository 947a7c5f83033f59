//! From what a step is told to the first hidden states.

use super::shape;
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;

kernel! {
    /// Known tokens, and what earlier steps drew.
    pub(crate) ResolveTokens = "resolve_tokens" in "embed" {
        tokens: Ptr<u32>, known: Ptr<u32>, refs: Ptr<u32>, drawn: Ptr<u32>, num_rows: i32,
    }
}

impl ResolveTokens {
    pub(crate) fn launch(&self, queue: &Queue) -> Result<(), DeviceError> {
        queue.launch(
            self,
            shape([(self.num_rows as usize).div_ceil(128), 1, 1], 128),
        )
    }
}

/// How the elements of an embedding are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableKind {
    F32 = 0,
    Bf16 = 1,
    F16 = 2,
}

kernel! {
    /// Rows of an embedding, widened.
    pub(crate) Embed = "embed" in "embed" {
        out: Ptr<f32>, table: Ptr<u8>, tokens: Ptr<u32>, kind: i32, n: i32,
    }
}

impl Embed {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        queue.launch(
            self,
            shape([num_rows, (self.n as usize).div_ceil(1024), 1], 256),
        )
    }
}
