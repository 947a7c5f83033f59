//! Softmax attention over blocks of the cache: projection, head norms, rotation, a place in the cache, the walk over
//! the blocks, and back.

use super::Step;
use crate::memory::Ptr;
use crate::model::Kept;
use crate::ops::HEAD_DIM_MAX;
use crate::ops::attention::{self, AttentionBlocks, AttentionMerge};
use crate::ops::place_kv::PlaceKv;
use crate::step::Widths;
use crate::weights::{Loader, Matrix, Norm};
use crate::{CudaError, DeviceError};
use lockstep_package::blueprint::AttentionParts;
use lockstep_package::ensure_range;

pub(crate) struct Attention {
    // Outputs: per query head its query (and its gate), then keys, then values.
    qkv: Matrix,
    out: Matrix,
    head_norms: Option<[Norm; 2]>,
    gated: bool,
    num_skipped: usize,
    num_heads: usize,
    num_kv_heads: usize,
    head_dim: usize,
    scale: f32,
    // Index among the layers that have keys and values.
    cache_layer: usize,
}

impl Attention {
    pub(crate) fn load(
        loader: &mut Loader<'_>,
        parts: &AttentionParts,
        cache_layer: usize,
    ) -> Result<Attention, CudaError> {
        let config = loader.config();
        ensure_range("head_dim", config.head_dim, 1..=HEAD_DIM_MAX)?;
        let head_norms = match &parts.head_norms {
            Some([query, key]) => Some([loader.norm(query)?, loader.norm(key)?]),
            None => None,
        };
        Ok(Attention {
            qkv: loader.matrix(&parts.qkv)?,
            out: loader.matrix(&parts.out)?,
            head_norms,
            gated: parts.gated,
            num_skipped: parts.num_skipped,
            num_heads: config.num_attention_heads,
            num_kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            cache_layer,
        })
    }

    /// The matrix that the layer's input goes through first.
    pub(crate) fn first(&self) -> &Matrix {
        &self.qkv
    }

    pub(crate) fn widths(&self) -> Widths {
        Widths {
            projected: self.qkv.n,
            mixed: self.out.k,
            inputs: self.out.k,
            per_block: self.num_heads * (self.head_dim + 2),
            ..Default::default()
        }
    }

    /// Floats from one query head to the next in a projected row.
    fn query_stride(&self) -> usize {
        self.head_dim * if self.gated { 2 } else { 1 }
    }

    /// From the normed input to the outputs of the layer; keys and values of the step go to the cache.
    pub(crate) fn forward(&self, step: &Step<'_>, kept: &Kept) -> Result<(), DeviceError> {
        let (buffers, m) = (step.buffers, step.arrays.num_rows);
        self.project(step, kept)?;
        let num_floats = m * step.arrays.blocks_max * self.num_heads * (self.head_dim + 2);
        if num_floats <= buffers.split_floats {
            self.attend_blocks(step, kept)?;
        } else {
            self.attend(step, kept)?;
        }
        step.linear(&self.out, buffers.mixed, m, buffers.out)
    }

    /// Projects the normed input, and places keys and values.
    pub(crate) fn project(&self, step: &Step<'_>, kept: &Kept) -> Result<(), DeviceError> {
        let (arrays, buffers, m) = (step.arrays, step.buffers, step.arrays.num_rows);
        step.multiply(&self.qkv, buffers.normed, m, buffers.projected)?;
        let norm = |which: usize| match &self.head_norms {
            Some(norms) => norms[which].weight,
            None => Ptr::null(),
        };
        let (keys, values) = kept.cache(self.cache_layer);
        let place = PlaceKv {
            projected: buffers.projected,
            keys,
            values,
            positions: arrays.positions,
            slots: arrays.slots,
            cos: step.cos,
            sin: step.sin,
            query_norm: norm(0),
            key_norm: norm(1),
            eps: self.head_norms.as_ref().map_or(0.0, |norms| norms[0].eps),
            width: self.qkv.n as i32,
            num_heads: self.num_heads as i32,
            num_kv_heads: self.num_kv_heads as i32,
            head_dim: self.head_dim as i32,
            query_stride: self.query_stride() as i32,
            pairs: step.pairs as i32,
        };
        place.launch(step.queue, m)
    }

    /// Each row and head walks over its blocks.
    fn attend(&self, step: &Step<'_>, kept: &Kept) -> Result<(), DeviceError> {
        let (arrays, buffers) = (step.arrays, step.buffers);
        let (keys, values) = kept.cache(self.cache_layer);
        let walk = attention::Attention {
            out: buffers.mixed,
            projected: buffers.projected,
            keys,
            values,
            positions: arrays.positions,
            owners: arrays.owners,
            tables: arrays.tables,
            table_width: arrays.table_width as i32,
            scale: self.scale,
            width: self.qkv.n as i32,
            num_heads: self.num_heads as i32,
            num_kv_heads: self.num_kv_heads as i32,
            head_dim: self.head_dim as i32,
            query_stride: self.query_stride() as i32,
            gated: i32::from(self.gated),
            num_skipped: self.num_skipped as i32,
        };
        walk.launch(step.queue, arrays.num_rows)
    }

    /// All blocks of each row and head side by side, then the ordered merge.
    fn attend_blocks(&self, step: &Step<'_>, kept: &Kept) -> Result<(), DeviceError> {
        let (arrays, buffers, m) = (step.arrays, step.buffers, step.arrays.num_rows);
        let (keys, values) = kept.cache(self.cache_layer);
        let per_head = m * self.num_heads * arrays.blocks_max;
        let (maxima, sums) = (buffers.split, buffers.split.at(per_head));
        let mixed = buffers.split.at(2 * per_head);
        AttentionBlocks {
            maxima,
            sums,
            mixed,
            projected: buffers.projected,
            keys,
            values,
            positions: arrays.positions,
            owners: arrays.owners,
            tables: arrays.tables,
            table_width: arrays.table_width as i32,
            scale: self.scale,
            width: self.qkv.n as i32,
            num_heads: self.num_heads as i32,
            num_kv_heads: self.num_kv_heads as i32,
            head_dim: self.head_dim as i32,
            query_stride: self.query_stride() as i32,
            num_skipped: self.num_skipped as i32,
            blocks_max: arrays.blocks_max as i32,
        }
        .launch(step.queue, m)?;
        let merge = AttentionMerge {
            out: buffers.mixed,
            maxima,
            sums,
            mixed,
            projected: buffers.projected,
            positions: arrays.positions,
            owners: arrays.owners,
            width: self.qkv.n as i32,
            num_heads: self.num_heads as i32,
            head_dim: self.head_dim as i32,
            query_stride: self.query_stride() as i32,
            gated: i32::from(self.gated),
            blocks_max: arrays.blocks_max as i32,
        };
        merge.launch(step.queue, m)
    }
}
