//! Softmax attention over blocks of the cache: in one kernel, or with the blocks of a table side by side.

use super::{HEAD_DIM_MAX, shape};
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;

/// Query heads of one kv head that a thread block takes at most.
const HEADS_MAX: usize = 8;

kernel! {
    /// Every row and head, block after block.
    pub(crate) Attention = "attention" in "attention" {
        out: Ptr<f32>, projected: Ptr<f32>, keys: Ptr<f32>, values: Ptr<f32>, positions: Ptr<u32>,
        owners: Ptr<u32>, tables: Ptr<u32>, table_width: i32, scale: f32, width: i32,
        num_heads: i32, num_kv_heads: i32, head_dim: i32, query_stride: i32, gated: i32,
        num_skipped: i32,
    }
}

/// Thread blocks per row: a kv head, and at most [`HEADS_MAX`] of its query heads.
fn tiles(num_heads: i32, num_kv_heads: i32, head_dim: i32) -> usize {
    assert!(
        (1..=HEAD_DIM_MAX as i32).contains(&head_dim),
        "a head of {head_dim}"
    );
    let group = (num_heads / num_kv_heads) as usize;
    num_kv_heads as usize * group.div_ceil(HEADS_MAX)
}

impl Attention {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        let tiles = tiles(self.num_heads, self.num_kv_heads, self.head_dim);
        queue.launch(self, shape([tiles, num_rows, 1], 256))
    }
}

kernel! {
    /// The first half of [`Attention`], with all blocks of a table side by side.
    pub(crate) AttentionBlocks = "attention_blocks" in "attention" {
        maxima: Ptr<f32>, sums: Ptr<f32>, mixed: Ptr<f32>, projected: Ptr<f32>, keys: Ptr<f32>,
        values: Ptr<f32>, positions: Ptr<u32>, owners: Ptr<u32>, tables: Ptr<u32>, table_width: i32,
        scale: f32, width: i32, num_heads: i32, num_kv_heads: i32, head_dim: i32, query_stride: i32,
        num_skipped: i32, blocks_max: i32,
    }
}

impl AttentionBlocks {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        let tiles = tiles(self.num_heads, self.num_kv_heads, self.head_dim);
        queue.launch(
            self,
            shape([tiles, num_rows, self.blocks_max as usize], 256),
        )
    }
}

kernel! {
    /// The second half: the merge in ascending order.
    pub(crate) AttentionMerge = "attention_merge" in "attention" {
        out: Ptr<f32>, maxima: Ptr<f32>, sums: Ptr<f32>, mixed: Ptr<f32>, projected: Ptr<f32>,
        positions: Ptr<u32>, owners: Ptr<u32>, width: i32, num_heads: i32, head_dim: i32,
        query_stride: i32, gated: i32, blocks_max: i32,
    }
}

impl AttentionMerge {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        let threads = (self.head_dim as u32).next_multiple_of(32);
        queue.launch(self, shape([self.num_heads as usize, num_rows, 1], threads))
    }
}
