//! A model on the device: built from the package's blueprint, run as a sequence of launches. Nothing here waits.

use crate::layers::{LAYER_OPS, Layer, Step, channels_and_state};
use crate::memory::{Memory, Ptr, Region};
use crate::ops::digest::LogitsDigest;
use crate::ops::embed::Embed;
use crate::queue::Queue;
use crate::step::{Arrays, Buffers, Widths};
use crate::weights::{Embedding, Loader, Matrix, Norm};
use crate::{CudaError, DeviceError};
use lockstep_package::ModelConfig;
use lockstep_package::blueprint::{Blueprint, rotary};
use lockstep_step::BLOCK_LEN;

/// The weights of a model.
pub(crate) struct Model {
    embedding: Embedding,
    layers: Vec<Layer>,
    final_norm: Norm,
    head: Matrix,
    // (positions, pairs)
    cos: Ptr<f32>,
    sin: Ptr<f32>,
    pairs: usize,
}

/// What is kept between steps: blocks of keys and values, and rows of recurrent state, found by id alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    // (layer, block, head, head_dim, 64) and (layer, block, head, 64, head_dim)
    keys: Ptr<f32>,
    values: Ptr<f32>,
    // Layers that have keys and values, floats of one block of them, and of all blocks.
    num_layers: usize,
    block_len: usize,
    layer_len: usize,
    // (layer, row, convolution then heads)
    states: Ptr<f32>,
    state_layer_len: usize,
}

impl Kept {
    /// Memory for so many rows of a model, in a region. It has no blocks yet. What it holds means nothing.
    pub(crate) fn claim_rows(
        memory: &mut Memory,
        config: &ModelConfig,
        (region, num_rows): (Region, usize),
    ) -> Result<Kept, CudaError> {
        let num_state_layers = Blueprint::of(config).num_state_layers();
        let num_layers = config.num_layers - num_state_layers;
        let state_layer_len = config
            .linear
            .map_or(0, |dims| num_rows * channels_and_state(&dims).1);
        let states = num_state_layers * state_layer_len;
        Ok(Kept {
            states: memory.claim(region, "rows of recurrent state", states)?,
            state_layer_len,
            ..Kept::of_layers(config, num_layers)
        })
    }

    /// For so many layers of attention, without blocks yet and without rows.
    pub(crate) fn of_layers(config: &ModelConfig, num_layers: usize) -> Kept {
        Kept {
            keys: Ptr::null(),
            values: Ptr::null(),
            num_layers,
            block_len: config.num_key_value_heads * config.head_dim * BLOCK_LEN as usize,
            layer_len: 0,
            states: Ptr::null(),
            state_layer_len: 0,
        }
    }

    /// Bytes of one block: keys and values in every layer that has them.
    pub(crate) fn block_bytes(&self) -> usize {
        2 * self.num_layers * self.block_len * size_of::<f32>()
    }

    /// Claims memory for so many blocks.
    pub(crate) fn claim_blocks(
        &mut self,
        memory: &mut Memory,
        (region, num_blocks): (Region, usize),
    ) -> Result<(), CudaError> {
        self.layer_len = num_blocks * self.block_len;
        let len = self.num_layers * self.layer_len;
        self.keys = memory.claim(region, "keys", len)?;
        self.values = memory.claim(region, "values", len)?;
        Ok(())
    }

    /// Keys and values of a layer.
    pub(crate) fn cache(&self, layer: usize) -> (Ptr<f32>, Ptr<f32>) {
        let at = layer * self.layer_len;
        (self.keys.at(at), self.values.at(at))
    }

    /// Rows of a layer.
    pub(crate) fn state(&self, layer: usize) -> Ptr<f32> {
        self.states.at(layer * self.state_layer_len)
    }
}

/// Where the logits of some scored positions go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logits {
    /// (positions, vocab_size)
    pub(crate) values: Ptr<f32>,
    /// One per position.
    pub(crate) digests: Ptr<u64>,
}

impl Model {
    /// Loads the model that the package's configuration names, for sequences of at most this length.
    pub(crate) fn load(loader: &mut Loader<'_>, seq_len_max: usize) -> Result<Model, CudaError> {
        let parts = loader.blueprint().clone();
        let table = rotary(loader.config()).table(seq_len_max);
        Ok(Model {
            embedding: loader.embedding(&parts.embedding)?,
            layers: parts
                .layers
                .iter()
                .map(|parts| Layer::load(loader, parts))
                .collect::<Result<_, _>>()?,
            final_norm: loader.norm(&parts.final_norm)?,
            head: loader.matrix(&parts.head)?,
            cos: loader.vector("cosines", &table.cos)?,
            sin: loader.vector("sines", &table.sin)?,
            pairs: table.pairs,
        })
    }

    pub(crate) fn vocab_size(&self) -> usize {
        self.head.n
    }

    /// Width of a hidden state.
    pub(crate) fn hidden(&self) -> usize {
        self.head.k
    }

    /// How wide the buffers of a step have to be.
    pub(crate) fn widths(&self) -> Widths {
        let own = Widths {
            hidden: self.hidden(),
            inputs: self.hidden(),
            ..Default::default()
        };
        let layers = self.layers.iter().map(Layer::widths);
        layers.fold(own, Widths::max)
    }

    /// What every layer of a step of this model sees.
    pub(crate) fn step<'a>(
        &self,
        queue: &'a Queue,
        arrays: &'a Arrays,
        buffers: &'a Buffers,
    ) -> Step<'a> {
        Step {
            queue,
            arrays,
            buffers,
            cos: self.cos,
            sin: self.sin,
            pairs: self.pairs,
        }
    }

    /// The embeddings of the step's tokens.
    pub(crate) fn embed(&self, step: &Step<'_>, out: Ptr<f32>) -> Result<(), DeviceError> {
        let embed = Embed {
            out,
            table: self.embedding.table,
            tokens: step.buffers.tokens,
            kind: self.embedding.kind as i32,
            n: self.hidden() as i32,
        };
        embed.launch(step.queue, step.arrays.num_rows)
    }

    /// From tokens to the hidden states after the last layer.
    pub(crate) fn forward(&self, step: &Step<'_>, kept: &Kept) -> Result<(), DeviceError> {
        self.embed(step, step.buffers.x)?;
        for (layer, op) in self.layers.iter().zip((0..).step_by(LAYER_OPS as usize)) {
            layer.forward(step, kept, op)?;
        }
        Ok(())
    }

    /// Final norm, head and digests of `num` scored positions from `first` on.
    pub(crate) fn head(
        &self,
        step: &Step<'_>,
        (first, num): (usize, usize),
        logits: Logits,
    ) -> Result<(), DeviceError> {
        if num == 0 {
            return Ok(());
        }
        let (queue, buffers) = (step.queue, step.buffers);
        let rows = step.arrays.scored.at(first);
        let final_op = LAYER_OPS * self.layers.len() as u32;
        let input = (buffers.x, rows, num);
        let fault = (buffers.faults, final_op);
        step.norm(&self.final_norm, input, (&self.head, false), fault)?;
        step.multiply(&self.head, buffers.normed, num, logits.values)?;
        queue.fill("digests", logits.digests, 0, num)?;
        let digest = LogitsDigest {
            digests: logits.digests,
            logits: logits.values,
            rows,
            n: self.vocab_size() as i32,
            faults: buffers.faults,
            op: final_op + 1,
        };
        digest.launch(queue, num)
    }

    /// Logits of `m` rows that are normed already.
    pub(crate) fn logits(
        &self,
        step: &Step<'_>,
        x: Ptr<f32>,
        m: usize,
        logits: Ptr<f32>,
    ) -> Result<(), DeviceError> {
        step.linear(&self.head, x, m, logits)
    }

    /// What the model made of every row: after the final norm, as floats.
    pub(crate) fn normed(&self, step: &Step<'_>, out: Ptr<f32>) -> Result<(), DeviceError> {
        let norm = crate::ops::norm::RmsNorm {
            out,
            x: step.buffers.x,
            rows: Ptr::null(),
            weight: self.final_norm.weight,
            eps: self.final_norm.eps,
            n: self.hidden() as i32,
            faults: Ptr::null(),
            op: 0,
        };
        norm.launch(step.queue, step.arrays.num_rows)
    }

    /// The name and the layer of an operation.
    pub(crate) fn op(&self, op: u32) -> (&'static str, Option<u32>) {
        let (layer, which) = (op / LAYER_OPS, op % LAYER_OPS);
        match self.layers.get(layer as usize) {
            Some(of) => (of.op(which), Some(layer)),
            None if which == 0 => ("final_norm", None),
            None => ("head", None),
        }
    }
}
