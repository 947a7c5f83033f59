//! Queries, keys and values of an attention layer, made ready.

use super::{HEAD_DIM_MAX, shape};
use crate::error::DeviceError;
use crate::kernel;
use crate::memory::Ptr;
use crate::queue::Queue;

kernel! {
    /// Head norms, rotation, and a place in the cache. A norm's weight may be null.
    pub(crate) PlaceKv = "place_kv" in "place_kv" {
        projected: Ptr<f32>, keys: Ptr<f32>, values: Ptr<f32>, positions: Ptr<u32>, slots: Ptr<u32>,
        cos: Ptr<f32>, sin: Ptr<f32>, query_norm: Ptr<f32>, key_norm: Ptr<f32>, eps: f32,
        width: i32, num_heads: i32, num_kv_heads: i32, head_dim: i32, query_stride: i32, pairs: i32,
    }
}

impl PlaceKv {
    pub(crate) fn launch(&self, queue: &Queue, num_rows: usize) -> Result<(), DeviceError> {
        assert!(self.head_dim as usize <= HEAD_DIM_MAX);
        let heads = (self.num_heads + self.num_kv_heads) as usize;
        queue.launch(self, shape([heads, num_rows, 1], 64))
    }
}
