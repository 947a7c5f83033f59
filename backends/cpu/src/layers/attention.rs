//! Softmax attention over blocks of the cache, with what architectures add: norms of each head's queries and
//! keys, and a sigmoid gate on the output.

use super::{ROWS_PER_TASK, Scratch, Step};
use crate::Linear;
use crate::cache::{BLOCK, KvCache};
use crate::disjoint::{Disjoint, for_rows, sized};
use crate::kernels::{self, AttendBlock, HEAD_DIM_MAX, RmsNorm, Rotate, SigmoidMul, TILE, Tile};
use crate::load::{Loader, Norm};
use crate::watch::Watch;
use lockstep_package::blueprint::AttentionParts;
use lockstep_package::{LoadError, ensure_range};
use lockstep_step::BlockId;

pub(crate) struct Attention {
    // Outputs: per query head its query (and its gate), then keys, then values.
    qkv: Linear,
    out: Linear,
    query_norm: Option<Norm>,
    key_norm: Option<Norm>,
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
    /// `cache_layer` is its index among the layers that have keys and values.
    pub(crate) fn load(
        loader: &Loader<'_>,
        parts: &AttentionParts,
        cache_layer: usize,
    ) -> Result<Attention, LoadError> {
        let config = loader.config();
        ensure_range("head_dim", config.head_dim, 1..=HEAD_DIM_MAX)?;
        let head_norm = |which: usize| match &parts.head_norms {
            Some(norms) => loader.norm(&norms[which]).map(Some),
            None => Ok(None),
        };
        Ok(Attention {
            qkv: loader.linear(&parts.qkv)?,
            out: loader.linear(&parts.out)?,
            query_norm: head_norm(0)?,
            key_norm: head_norm(1)?,
            gated: parts.gated,
            num_skipped: parts.num_skipped,
            num_heads: config.num_attention_heads,
            num_kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            scale: 1.0 / (config.head_dim as f32).sqrt(),
            cache_layer,
        })
    }

    /// Bytes of weights that a step reads.
    pub(crate) fn num_bytes(&self) -> usize {
        self.qkv.num_bytes() + self.out.num_bytes()
    }

    /// Floats from one query head to the next in a projected row.
    fn query_stride(&self) -> usize {
        self.head_dim * if self.gated { 2 } else { 1 }
    }

    /// `x` and `out` are (rows, hidden). Writes the step's keys and values to the cache.
    pub(crate) fn forward(
        &self,
        (step, watch): (&Step<'_>, &mut Watch),
        cache: &mut KvCache,
        scratch: &mut Scratch,
        x: &[f32],
        out: &mut [f32],
    ) {
        let (isa, pool, m) = (step.machine.isa, step.machine.pool, step.batch.num_rows());
        let projected = sized(&mut scratch.projected, m * self.qkv.n());
        self.qkv.forward(isa, pool, x, m, projected);
        watch.ended(step.machine, "qkv", self.qkv.n(), projected);
        self.place(step, cache, projected);
        watch.ended(step.machine, "rotary", self.qkv.n(), projected);
        let width = self.num_heads * self.head_dim;
        let mixed = sized(&mut scratch.mixed, m * width);
        self.attend(step, cache, projected, mixed);
        watch.ended(step.machine, "attend", width, mixed);
        self.out.forward(isa, pool, mixed, m, out);
        watch.ended(step.machine, "attention_out", self.out.n(), out);
    }

    /// Only writes the step's keys and values to the cache. `x` is (rows, hidden).
    pub(crate) fn remember(
        &self,
        step: &Step<'_>,
        cache: &mut KvCache,
        scratch: &mut Scratch,
        x: &[f32],
    ) {
        let (isa, pool, m) = (step.machine.isa, step.machine.pool, step.batch.num_rows());
        let projected = sized(&mut scratch.projected, m * self.qkv.n());
        self.qkv.forward(isa, pool, x, m, projected);
        self.place(step, cache, projected);
    }

    /// Norms and rotates queries and keys in place, and writes keys and values to their slots.
    fn place(&self, step: &Step<'_>, cache: &mut KvCache, projected: &mut [f32]) {
        let (isa, pool, batch) = (step.machine.isa, step.machine.pool, step.batch);
        let (head_dim, width) = (self.head_dim, self.qkv.n());
        let (stride, queries) = (self.query_stride(), self.num_heads * self.query_stride());
        let writer = cache.writer(self.cache_layer);
        let prepare = |head: &mut [f32], norm: &Option<Norm>, cos: &[f32], sin: &[f32]| {
            if let Some(norm) = norm {
                let mut x = [0.0; HEAD_DIM_MAX];
                x[..head_dim].copy_from_slice(head);
                let (weight, eps) = (&norm.weight, norm.eps);
                let x = &x[..head_dim];
                kernels::run(
                    isa,
                    RmsNorm {
                        x,
                        weight,
                        eps,
                        out: &mut *head,
                    },
                );
            }
            kernels::run(isa, Rotate { head, cos, sin });
        };
        for_rows(pool, projected, width, ROWS_PER_TASK, &|row, projected| {
            // Padding has no place.
            let Some(slot) = batch.slot(row) else {
                return;
            };
            let (cos, sin) = step.rotary.row(batch.pos(row).0 as usize);
            let (heads, rest) = projected.split_at_mut(queries);
            for head in heads.chunks_exact_mut(stride) {
                prepare(&mut head[..head_dim], &self.query_norm, cos, sin);
            }
            let (keys, values) = rest.split_at_mut(self.num_kv_heads * head_dim);
            let heads = keys
                .chunks_exact_mut(head_dim)
                .zip(values.chunks_exact(head_dim));
            for (head, (key, value)) in heads.enumerate() {
                prepare(key, &self.key_norm, cos, sin);
                // SAFETY: a checked plan gives each row a slot of its own, and each row has one task.
                unsafe { writer.write(slot, head, key, value) };
            }
        });
    }

    /// Attention of every row and head: `mixed` is (rows, heads, head_dim).
    fn attend(&self, step: &Step<'_>, cache: &KvCache, projected: &[f32], mixed: &mut [f32]) {
        let batch = step.batch;
        let group = self.num_heads / self.num_kv_heads;
        // A tile holds the heads that share keys, for one or more neighbouring rows.
        let heads_per_tile = group.min(TILE);
        let rows_per_tile = TILE / heads_per_tile;
        let mut tiles = Vec::new();
        for seq_idx in 0..batch.num_seqs() {
            let rows = batch.rows(seq_idx);
            for first in rows.clone().step_by(rows_per_tile) {
                for kv_head in 0..self.num_kv_heads {
                    for first_head in (0..group).step_by(heads_per_tile) {
                        let end = (first_head + heads_per_tile).min(group);
                        tiles.push(Task {
                            seq_idx,
                            rows: first..rows.end.min(first + rows_per_tile),
                            kv_head,
                            heads: kv_head * group + first_head..kv_head * group + end,
                        });
                    }
                }
            }
        }
        batch.poison_padding(mixed, self.num_heads * self.head_dim);
        let mixed = Disjoint::new(mixed);
        step.machine.pool.run(tiles.len(), &|idx| {
            // SAFETY: tiles share no pair of row and head, and each is one task.
            unsafe { self.attend_tile(step, cache, projected, &tiles[idx], &mixed) };
        });
    }

    /// # Safety
    /// No other task writes these heads of these rows.
    unsafe fn attend_tile(
        &self,
        step: &Step<'_>,
        cache: &KvCache,
        projected: &[f32],
        task: &Task,
        mixed: &Disjoint<'_>,
    ) {
        let (isa, batch, head_dim) = (step.machine.isa, step.batch, self.head_dim);
        let mut tile = Tile::new();
        let mut queries: [&[f32]; TILE] = [&[]; TILE];
        let mut places = [(0, 0); TILE];
        let mut num_queries = 0;
        for row in task.rows.clone() {
            for head in task.heads.clone() {
                let at = row * self.qkv.n() + head * self.query_stride();
                queries[num_queries] = &projected[at..at + head_dim];
                places[num_queries] = (row, head);
                num_queries += 1;
            }
        }
        let last_pos = batch.pos(task.rows.end - 1).0 as usize;
        let table = batch.block_table(task.seq_idx);
        let mut valid = [0; TILE];
        for (block_idx, &block) in table[..=last_pos / BLOCK].iter().enumerate() {
            let block = BlockId(block);
            for (valid, &(row, _)) in valid.iter_mut().zip(&places[..num_queries]) {
                let num_seen = batch.pos(row).0 as usize + 1;
                *valid = num_seen.saturating_sub(block_idx * BLOCK).min(BLOCK);
            }
            kernels::run(
                isa,
                AttendBlock {
                    keys: cache.keys(self.cache_layer, block, task.kv_head),
                    values: cache.values(self.cache_layer, block, task.kv_head),
                    scale: self.scale,
                    queries: &queries[..num_queries],
                    valid: &valid[..num_queries],
                    skipped: self
                        .num_skipped
                        .saturating_sub(block_idx * BLOCK)
                        .min(BLOCK),
                    tile: &mut tile,
                },
            );
        }
        for (query, &(row, head)) in places[..num_queries].iter().enumerate() {
            let at = (row * self.num_heads + head) * head_dim;
            // SAFETY: passed on.
            let out = unsafe { mixed.slice(at, head_dim) };
            tile.finish(query, out);
            if self.gated {
                let at = row * self.qkv.n() + head * self.query_stride() + head_dim;
                let gate = &projected[at..at + head_dim];
                kernels::run(isa, SigmoidMul { x: out, gate });
            }
        }
    }
}

/// Heads that share keys, for a few neighbouring rows of one sequence.
struct Task {
    seq_idx: usize,
    rows: std::ops::Range<usize>,
    kv_head: usize,
    heads: std::ops::Range<usize>,
}
