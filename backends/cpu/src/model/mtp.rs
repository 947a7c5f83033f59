//! The head of a Qwen3.5 checkpoint that drafts tokens after the next (multi-token prediction): one layer of
//! attention and MLP over pairs of a token and what the model made of the token before it.
//!
//! ```text
//! h[s]     the model's output after its final norm, at position s
//! x[s] = fc([norm_e(embedding(token[s])), norm_h(h[s - 1])])
//! g[s] = norm(layer(x)[s])      attention over the entries 1 ..= s
//! head(g[s])                    drafts token s + 1
//! ```
//!
//! An entry lies in the slot of its token and depends on tokens at or before it alone, so blocks are shared
//! and given up as the model's own. Position 0 has no `h` before it: its slot is written and never seen.
//! Where `h[s]` was not computed, `g[s]` stands in for it: that is how further tokens are drafted.

use super::{Layer, Memory, Mixer, Model};
use crate::Linear;
use crate::batch::{Batch, Machine};
use crate::cache::{HiddenCache, KvCache, StateRows};
use crate::disjoint::{for_rows, sized};
use crate::kernels::{self, RmsNorm};
use crate::layers::{ROWS_PER_TASK, Step, normalise};
use crate::load::{Loader, Norm};
use crate::watch::Watch;
use lockstep_package::{LoadError, ModelConfig};
use lockstep_step::Pos;

/// The weights of the head. Embedding and output matrix are the model's.
pub(crate) struct Mtp {
    token_norm: Norm,
    hidden_norm: Norm,
    // Inputs: a token, then what was made of the one before.
    fc: Linear,
    layer: Layer,
    norm: Norm,
}

/// What the head keeps: its own keys and values, and the model's outputs, in the model's blocks.
pub(crate) struct MtpMemory {
    memory: Memory,
    outputs: HiddenCache,
    // (rows, 2 * hidden)
    pairs: Vec<f32>,
}

impl MtpMemory {
    pub(crate) fn new(config: &ModelConfig, num_blocks: usize) -> MtpMemory {
        let (heads, head_dim) = (config.num_key_value_heads, config.head_dim);
        MtpMemory {
            memory: Memory {
                cache: KvCache::new(1, num_blocks, heads, head_dim),
                rows: StateRows::none(),
                buffers: super::Buffers::default(),
            },
            outputs: HiddenCache::new(num_blocks, config.hidden_size),
            pairs: Vec::new(),
        }
    }

    /// Everything that is kept between steps.
    #[cfg(test)]
    pub(crate) fn contents(&self) -> impl Iterator<Item = f32> {
        self.memory.contents().chain(self.outputs.contents())
    }

    /// Bytes that all blocks together can take.
    pub(crate) fn num_bytes(&self) -> usize {
        self.memory.cache.num_bytes() + self.outputs.num_bytes()
    }
}

/// What the first entry of each sequence of a batch follows on.
pub(crate) enum Before<'a> {
    /// The model's output at the position before, from the cache.
    Kept,
    /// The head's own outputs, one per sequence: (sequences, hidden).
    Own(&'a [f32]),
}

impl Mtp {
    /// # Panics
    /// If the architecture has no place for a head: the loader was made for one.
    pub(crate) fn load(loader: &Loader<'_>) -> Result<Mtp, LoadError> {
        let parts = loader.reader.blueprint().mtp.as_ref();
        let parts = parts.expect("a place for the head");
        Ok(Mtp {
            token_norm: loader.norm(&parts.token_norm)?,
            hidden_norm: loader.norm(&parts.hidden_norm)?,
            fc: loader.linear(&parts.fc)?,
            layer: Layer::load(loader, &parts.layer)?,
            norm: loader.norm(&parts.norm)?,
        })
    }

    /// Bytes of weights that a draft reads, besides those of the model's head.
    pub(crate) fn num_bytes(&self) -> usize {
        self.fc.num_bytes() + self.layer.num_bytes()
    }

    /// Computes the entries of a step that the model has just computed: keys and values alone, since nobody
    /// asks for drafts here. `outputs` is the model's, (rows, hidden).
    pub(crate) fn mirror(
        &self,
        machine: Machine<'_>,
        model: &Model,
        batch: &Batch<'_>,
        outputs: &[f32],
        memory: &mut MtpMemory,
    ) {
        self.enter(machine, model, batch, (outputs, Before::Kept), memory);
        self.keep(batch, outputs, memory);
        let Mixer::Attention(attention) = &self.layer.mixer else {
            unreachable!("loaded as attention")
        };
        let len = batch.num_rows() * model.hidden;
        let Memory { cache, buffers, .. } = &mut memory.memory;
        let x = sized(&mut buffers.x, len);
        let normed = sized(&mut buffers.normed, len);
        let watch = Watch::of(batch);
        normalise(machine, &self.layer.mixer_norm, x, normed, &watch);
        let step = step(machine, model, batch);
        attention.remember(&step, cache, &mut buffers.scratch, normed);
    }

    /// Computes the entries of a step, and their outputs: (rows, hidden). `within` holds what stands before
    /// the later entries of a sequence, (rows, hidden), and is not looked at where each has but one.
    pub(crate) fn forward(
        &self,
        machine: Machine<'_>,
        model: &Model,
        batch: &Batch<'_>,
        (within, before): (&[f32], Before<'_>),
        memory: &mut MtpMemory,
        out: &mut Vec<f32>,
    ) {
        self.enter(machine, model, batch, (within, before), memory);
        let mut watch = Watch::of(batch);
        let step = step(machine, model, batch);
        self.layer.forward(&step, 0, &mut memory.memory, &mut watch);
        let out = sized(out, batch.num_rows() * model.hidden);
        normalise(machine, &self.norm, &memory.memory.buffers.x, out, &watch);
    }

    /// As [`Mtp::mirror`], with the logits of every entry: (rows, vocab_size).
    pub(crate) fn mirror_probed(
        &self,
        machine: Machine<'_>,
        model: &Model,
        batch: &Batch<'_>,
        outputs: &[f32],
        memory: &mut MtpMemory,
    ) -> Vec<f32> {
        let mut out = Vec::new();
        let before = (outputs, Before::Kept);
        self.forward(machine, model, batch, before, memory, &mut out);
        self.keep(batch, outputs, memory);
        let mut logits = vec![0.0; batch.num_real_rows() * model.vocab_size()];
        model.logits(machine, &out, batch.num_real_rows(), &mut logits);
        logits
    }

    /// Keeps the model's outputs, for whoever goes on from there.
    fn keep(&self, batch: &Batch<'_>, outputs: &[f32], memory: &mut MtpMemory) {
        let width = self.norm.weight.len();
        for (row, output) in outputs.chunks_exact(width).enumerate() {
            if let Some(slot) = batch.slot(row) {
                memory.outputs.write(slot, output);
            }
        }
    }

    /// `x` of every row.
    fn enter(
        &self,
        machine: Machine<'_>,
        model: &Model,
        batch: &Batch<'_>,
        (within, before): (&[f32], Before<'_>),
        memory: &mut MtpMemory,
    ) {
        let (hidden, m) = (model.hidden, batch.num_rows());
        let (zeros, nothing) = (vec![0.0; hidden], vec![f32::NAN; hidden]);
        let kept = &memory.outputs;
        let before_row = |row: usize| -> &[f32] {
            let Some((seq_idx, query_idx)) = batch.owner(row) else {
                return &nothing;
            };
            let pos = batch.pos(row).0;
            match (query_idx, &before) {
                (1.., _) => &within[(row - 1) * hidden..row * hidden],
                (0, Before::Own(own)) => &own[seq_idx * hidden..(seq_idx + 1) * hidden],
                (0, Before::Kept) if pos == 0 => &zeros,
                (0, Before::Kept) => kept.read(batch.slot_at(seq_idx, Pos(pos - 1))),
            }
        };
        if batch.is_fixed() {
            memory.memory.buffers.poison();
            memory.pairs.fill(f32::NAN);
        }
        let pairs = sized(&mut memory.pairs, m * 2 * hidden);
        for_rows(
            machine.pool,
            pairs,
            2 * hidden,
            ROWS_PER_TASK,
            &|row, pair| {
                let (token, other) = pair.split_at_mut(hidden);
                // The other half holds the embedding until the token's norm has been taken.
                model.embed(batch, row, other);
                self.half(machine, &self.token_norm, other, token);
                self.half(machine, &self.hidden_norm, before_row(row), other);
            },
        );
        let x = sized(&mut memory.memory.buffers.x, m * hidden);
        self.fc.forward(machine.isa, machine.pool, pairs, m, x);
    }

    fn half(&self, machine: Machine<'_>, norm: &Norm, x: &[f32], out: &mut [f32]) {
        let (weight, eps) = (&norm.weight[..], norm.eps);
        // A sum that overflows makes what follows not finite, and so no draft.
        kernels::run(
            machine.isa,
            RmsNorm {
                x,
                weight,
                eps,
                out,
            },
        );
    }
}

fn step<'a>(machine: Machine<'a>, model: &'a Model, batch: &'a Batch<'a>) -> Step<'a> {
    Step {
        machine,
        batch,
        rotary: &model.rotary,
    }
}
