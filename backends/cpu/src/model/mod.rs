//! A model is data: an embedding, layers made of shared pieces, a norm and a head. The package's blueprint says
//! which pieces and which tensors; this file runs whatever was built from it.

mod mtp;

pub(crate) use mtp::{Before, Mtp, MtpMemory};

use crate::batch::{Batch, Machine};
use crate::cache::{KvCache, StateRows};
use crate::disjoint::{for_rows, sized};
use crate::layers::{
    self, Attention, DeltaNet, Mlp, ROWS_PER_TASK, Scratch, Step, add_and_check, normalise,
};
use crate::load::{Embedding, Loader, Norm};
use crate::watch::Watch;
use crate::{Linear, kernels};
use lockstep_numerics::rotary::RotaryTable;
use lockstep_package::blueprint::{Blueprint, LayerParts, MixerParts, rotary};
use lockstep_package::{LoadError, ModelConfig};
use lockstep_step::NO_ID;

/// What a layer mixes tokens with.
pub(crate) enum Mixer {
    Attention(Attention),
    DeltaNet(DeltaNet),
}

/// One layer: `x += mixer(norm(x))`, then `x += mlp(norm(x))`.
pub(crate) struct Layer {
    pub(crate) mixer_norm: Norm,
    pub(crate) mixer: Mixer,
    pub(crate) mlp_norm: Norm,
    pub(crate) mlp: Mlp,
}

impl Layer {
    fn load(loader: &Loader<'_>, parts: &LayerParts) -> Result<Layer, LoadError> {
        let place = parts.place;
        Ok(Layer {
            mixer_norm: loader.norm(&parts.mixer_norm)?,
            mixer: match &parts.mixer {
                MixerParts::Attention(parts) => {
                    Mixer::Attention(Attention::load(loader, parts, place)?)
                }
                MixerParts::DeltaNet(parts) => {
                    Mixer::DeltaNet(DeltaNet::load(loader, parts, place)?)
                }
            },
            mlp_norm: loader.norm(&parts.mlp_norm)?,
            mlp: Mlp::load(loader, parts)?,
        })
    }

    /// Bytes of weights that a step reads.
    fn num_bytes(&self) -> usize {
        let mixer = match &self.mixer {
            Mixer::Attention(attention) => attention.num_bytes(),
            Mixer::DeltaNet(delta_net) => delta_net.num_bytes(),
        };
        mixer + self.mlp.num_bytes()
    }

    /// Runs the layer on the rows of `x`, in place.
    fn forward(&self, step: &Step<'_>, idx: usize, memory: &mut Memory, watch: &mut Watch) {
        watch.enter(Some(idx));
        let (machine, hidden) = (step.machine, self.mlp_norm.weight.len());
        let len = step.batch.num_rows() * hidden;
        let Memory {
            cache,
            rows,
            buffers,
        } = memory;
        let x = sized(&mut buffers.x, len);
        let normed = sized(&mut buffers.normed, len);
        let mixed = sized(&mut buffers.mixed, len);
        let scratch = &mut buffers.scratch;
        normalise(machine, &self.mixer_norm, x, normed, watch);
        watch.ended(machine, "norm", hidden, normed);
        let name = match &self.mixer {
            Mixer::Attention(attention) => {
                attention.forward((step, watch), cache, scratch, normed, mixed);
                "attention"
            }
            Mixer::DeltaNet(delta_net) => {
                delta_net.forward((step, watch), rows, scratch, normed, mixed);
                "delta_net"
            }
        };
        add_and_check(machine, hidden, x, mixed, watch);
        watch.ended(machine, name, hidden, x);
        normalise(machine, &self.mlp_norm, x, normed, watch);
        watch.ended(machine, "mlp_norm", hidden, normed);
        self.mlp.forward(step, watch, scratch, normed, mixed);
        add_and_check(machine, hidden, x, mixed, watch);
        watch.ended(machine, "mlp", hidden, x);
    }
}

/// The weights of a model.
pub(crate) struct Model {
    embedding: Embedding,
    layers: Vec<Layer>,
    final_norm: Norm,
    head: Linear,
    rotary: RotaryTable,
    hidden: usize,
}

/// What a step reads and writes besides the plan.
pub(crate) struct Memory {
    pub(crate) cache: KvCache,
    pub(crate) rows: StateRows,
    buffers: Buffers,
}

/// What a step computes in: (rows, hidden) each, but for what layers share.
#[derive(Default)]
struct Buffers {
    scratch: Scratch,
    x: Vec<f32>,
    normed: Vec<f32>,
    mixed: Vec<f32>,
}

impl Buffers {
    /// Leaves nothing of an earlier step.
    fn poison(&mut self) {
        for buffer in [&mut self.x, &mut self.normed, &mut self.mixed] {
            buffer.fill(f32::NAN);
        }
        self.scratch.poison();
    }
}

/// Intermediate results of a whole step, for comparisons with an oracle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// Logits of every query token: (rows, vocab_size).
    pub logits: Vec<f32>,
    /// After the embedding, after each layer but the last, and after the final norm: (rows, hidden) each.
    pub hidden: Vec<Vec<f32>>,
    /// Logits of the checkpoint's own drafting head, where it is loaded: (rows, vocab_size). The row of a
    /// token drafts the token after the next one of the model before it. That of position 0 means nothing.
    pub mtp_logits: Vec<f32>,
}

/// What a step is to leave behind besides blocks and rows.
pub(crate) struct Wanted<'a> {
    /// The rows whose logits are wanted; padding is not a row.
    pub(crate) selected: &'a [u32],
    /// (selected, vocab_size)
    pub(crate) logits: &'a mut [f32],
    /// Where hidden states go.
    pub(crate) probe: Option<&'a mut Probe>,
}

impl Model {
    /// Loads the model that the package's configuration names, for sequences of at most this length.
    pub(crate) fn load(loader: &Loader<'_>, seq_len_max: usize) -> Result<Model, LoadError> {
        let (config, parts) = (loader.config(), loader.reader.blueprint());
        Ok(Model {
            embedding: loader.embedding(&parts.embedding)?,
            layers: parts
                .layers
                .iter()
                .map(|parts| Layer::load(loader, parts))
                .collect::<Result<_, _>>()?,
            final_norm: loader.norm(&parts.final_norm)?,
            head: loader.linear(&parts.head)?,
            rotary: rotary(config).table(seq_len_max),
            hidden: config.hidden_size,
        })
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.head.n()
    }

    /// Bytes of weights that a decode step of one token reads.
    pub(crate) fn num_bytes(&self) -> usize {
        let layers = self.layers.iter().map(Layer::num_bytes);
        layers.sum::<usize>() + self.head.num_bytes()
    }

    /// Runs a step.
    pub(crate) fn forward(
        &self,
        machine: Machine<'_>,
        batch: &Batch<'_>,
        memory: &mut Memory,
        watch: &mut Watch,
        mut wanted: Wanted<'_>,
    ) {
        let (hidden, m) = (self.hidden, batch.num_rows());
        let step = Step {
            machine,
            batch,
            rotary: &self.rotary,
        };
        if batch.is_fixed() {
            memory.buffers.poison();
        }
        let x = sized(&mut memory.buffers.x, m * hidden);
        for_rows(machine.pool, x, hidden, ROWS_PER_TASK, &|row, x| {
            self.embed(batch, row, x);
        });
        watch.ended(machine, "embedding", hidden, x);
        for (idx, layer) in self.layers.iter().enumerate() {
            if let Some(probe) = wanted.probe.as_deref_mut() {
                let len = batch.num_real_rows() * hidden;
                probe.hidden.push(memory.buffers.x[..len].to_vec());
            }
            layer.forward(&step, idx, memory, watch);
        }
        watch.enter(None);
        if let Some(probe) = wanted.probe.take() {
            let mut normed = Vec::new();
            self.normed(machine, batch, memory, &mut normed);
            normed.truncate(batch.num_real_rows() * hidden);
            probe.hidden.push(normed);
        }
        self.head(machine, memory, watch, wanted);
    }

    /// Writes the embedding of a row's token.
    fn embed(&self, batch: &Batch<'_>, row: usize, out: &mut [f32]) {
        match batch.token(row) {
            Some(token) => self.embedding.row(token.0 as usize, out),
            None => out.fill(f32::NAN),
        }
    }

    /// What the head sees of all rows of the step that was just run: (rows, hidden). A row that is not
    /// finite is no error here.
    pub(crate) fn normed(
        &self,
        machine: Machine<'_>,
        batch: &Batch<'_>,
        memory: &Memory,
        out: &mut Vec<f32>,
    ) {
        let (out, x) = (
            sized(out, batch.num_rows() * self.hidden),
            &memory.buffers.x,
        );
        normalise(machine, &self.final_norm, x, out, &Watch::of(batch));
    }

    /// Logits of `m` rows that are normed already: (rows, vocab_size).
    pub(crate) fn logits(&self, machine: Machine<'_>, x: &[f32], m: usize, logits: &mut [f32]) {
        self.head
            .forward(machine.isa, machine.pool, &x[..m * self.hidden], m, logits);
    }

    /// Width of a hidden state.
    pub(crate) fn hidden(&self) -> usize {
        self.hidden
    }

    /// Final norm and head of the selected rows.
    fn head(
        &self,
        machine: Machine<'_>,
        memory: &mut Memory,
        watch: &mut Watch,
        wanted: Wanted<'_>,
    ) {
        let (selected, logits) = (wanted.selected, wanted.logits);
        let (hidden, x) = (self.hidden, &memory.buffers.x);
        let normed = sized(&mut memory.buffers.normed, selected.len() * hidden);
        {
            let watch = &*watch;
            for_rows(machine.pool, normed, hidden, ROWS_PER_TASK, &|idx, out| {
                if selected[idx] == NO_ID {
                    out.fill(f32::NAN);
                    return;
                }
                let row = selected[idx] as usize;
                let finite = kernels::run(
                    machine.isa,
                    kernels::RmsNorm {
                        x: &x[row * hidden..(row + 1) * hidden],
                        weight: &self.final_norm.weight,
                        eps: self.final_norm.eps,
                        out,
                    },
                );
                if !finite {
                    watch.mark(row);
                }
            });
        }
        watch.ended_at(machine, "final_norm", (selected, hidden), normed);
        self.head
            .forward(machine.isa, machine.pool, normed, selected.len(), logits);
        let vocab_size = self.vocab_size();
        machine.pool.run(selected.len(), &|idx| {
            if selected[idx] != NO_ID {
                let row = &logits[idx * vocab_size..(idx + 1) * vocab_size];
                watch.check(machine.isa, selected[idx] as usize, row);
            }
        });
        watch.ended_at(machine, "head", (selected, vocab_size), logits);
    }
}

impl Memory {
    /// Everything that is kept between steps.
    #[cfg(test)]
    pub(crate) fn contents(&self) -> impl Iterator<Item = f32> {
        self.cache.contents().chain(self.rows.contents())
    }

    /// Memory for this many blocks and rows; the system provides it as it is used.
    pub(crate) fn new(config: &ModelConfig, num_blocks: usize, num_rows: usize) -> Memory {
        let num_state_layers = num_state_layers(config);
        let rows = match &config.linear {
            Some(dims) => StateRows::new(num_state_layers, num_rows, layers::state_shape(dims)),
            None => StateRows::none(),
        };
        Memory {
            cache: KvCache::new(
                config.num_layers - num_state_layers,
                num_blocks,
                config.num_key_value_heads,
                config.head_dim,
            ),
            rows,
            buffers: Buffers::default(),
        }
    }
}

/// Layers that keep recurrent state.
pub(crate) fn num_state_layers(config: &ModelConfig) -> usize {
    Blueprint::of(config).num_state_layers()
}
