//! The head of a checkpoint that drafts tokens after the next: one layer over pairs of a token and what the model made
//! of the token before it. What is kept of it lies in the model's own blocks.

use super::{Rounds, SEQS_MAX};
use crate::layers::{Layer, Step};
use crate::memory::{Memory, Ptr, Region};
use crate::model::{Kept, Model};
use crate::ops::mtp::{GatherRows, KeepRows, MtpEnter};
use crate::ops::norm::RmsNorm;
use crate::queue::Queue;
use crate::step::{Buffers, Widths};
use crate::weights::{Loader, Matrix, Norm};
use crate::{CudaError, DeviceError};
use lockstep_package::ModelConfig;
use lockstep_sampling::Asked;
use lockstep_step::{BLOCK_LEN, SeqPlan, TokenId};

pub(crate) struct Mtp {
    token_norm: Norm,
    hidden_norm: Norm,
    // Inputs: a token, then what was made of the one before.
    fc: Matrix,
    layer: Layer,
    norm: Norm,
    held: Held,
}

/// What the head keeps and computes in.
#[derive(Clone, Copy)]
struct Held {
    kept: Kept,
    // (block, 64, hidden): what the model made of each position.
    outputs: Ptr<f32>,
    // (rows, hidden) each: of the step, and the head's own hidden states.
    normed: Ptr<f32>,
    embedded: Ptr<f32>,
    x: Ptr<f32>,
    // (rows, 2 * hidden)
    pairs: Ptr<f32>,
    faults: Ptr<u32>,
    // (SEQS_MAX, hidden): what stands before the next round's entries.
    before: Ptr<f32>,
}

impl Held {
    fn claim(
        memory: &mut Memory,
        config: &ModelConfig,
        rows_max: usize,
    ) -> Result<Held, CudaError> {
        let (region, hidden) = (Region::Drafters, config.hidden_size);
        let mut floats = |what: &str, len: usize| memory.claim(region, what, len * hidden);
        Ok(Held {
            kept: Kept::of_layers(config, 1),
            outputs: Ptr::null(),
            normed: floats("outputs of a step", rows_max)?,
            embedded: floats("embeddings", rows_max)?,
            x: floats("hidden states of the head", rows_max)?,
            pairs: floats("pairs", 2 * rows_max)?,
            before: floats("outputs of a round", SEQS_MAX)?,
            faults: memory.claim(region, "faults of the head", rows_max)?,
        })
    }
}

/// What the first entry of each sequence follows on.
#[derive(Clone, Copy)]
enum Before {
    /// The model's output at the position before, by its slot.
    Kept,
    /// The head's own outputs, one per sequence.
    Own,
}

impl Mtp {
    /// # Panics
    /// If the architecture has no place for a head: the loader was made for one.
    pub(crate) fn load(loader: &mut Loader<'_>, rows_max: usize) -> Result<Mtp, CudaError> {
        let parts = loader.blueprint().mtp.clone();
        let parts = parts.expect("a place for the head");
        let config = loader.config();
        Ok(Mtp {
            token_norm: loader.norm(&parts.token_norm)?,
            hidden_norm: loader.norm(&parts.hidden_norm)?,
            fc: loader.matrix(&parts.fc)?,
            layer: Layer::load(loader, &parts.layer)?,
            norm: loader.norm(&parts.norm)?,
            held: Held::claim(loader.memory, config, rows_max)?,
        })
    }

    /// Floats of a block's outputs.
    fn outputs_len(&self) -> usize {
        BLOCK_LEN as usize * self.fc.n
    }

    /// Bytes that it keeps of one block.
    pub(super) fn block_bytes(&self) -> usize {
        self.held.kept.block_bytes() + self.outputs_len() * size_of::<f32>()
    }

    /// Claims memory for so many blocks.
    pub(super) fn claim_blocks(
        &mut self,
        memory: &mut Memory,
        num_blocks: usize,
    ) -> Result<(), CudaError> {
        let blocks = (Region::Drafters, num_blocks);
        self.held.kept.claim_blocks(memory, blocks)?;
        let len = num_blocks * self.outputs_len();
        self.held.outputs = memory.claim(Region::Drafters, "outputs by slot", len)?;
        Ok(())
    }

    /// How wide the buffers of a step have to be.
    pub(crate) fn widths(&self) -> Widths {
        let own = Widths {
            inputs: self.fc.k,
            ..Default::default()
        };
        own.max(self.layer.widths())
    }

    /// The buffers of a step, with the head's own in place of what the model still needs.
    fn buffers(&self, of_step: &Buffers) -> Buffers {
        Buffers {
            x: self.held.x,
            faults: self.held.faults,
            ..*of_step
        }
    }

    /// Computes the entries of a step that the model has just computed: keys and values alone, since nobody asks for
    /// drafts here.
    pub(super) fn mirror(&self, model: &Model, step: &Step<'_>) -> Result<(), DeviceError> {
        let (held, m) = (&self.held, step.arrays.num_rows);
        model.normed(step, held.normed)?;
        let buffers = self.buffers(step.buffers);
        let own = Step {
            buffers: &buffers,
            ..*step
        };
        self.enter(model, &own, Before::Kept)?;
        KeepRows {
            kept: held.outputs,
            x: held.normed,
            slots: step.arrays.slots,
            n: self.norm_len(),
        }
        .launch(step.queue, m)?;
        self.layer.remember(&own, &held.kept)
    }

    fn norm_len(&self) -> i32 {
        self.fc.n as i32
    }

    /// `x` of every row.
    fn enter(&self, model: &Model, step: &Step<'_>, before: Before) -> Result<(), DeviceError> {
        let (held, arrays, m) = (&self.held, step.arrays, step.arrays.num_rows);
        model.embed(step, held.embedded)?;
        MtpEnter {
            pairs: held.pairs,
            embedded: held.embedded,
            within: held.normed,
            own: match before {
                Before::Kept => Ptr::null(),
                Before::Own => held.before,
            },
            kept: held.outputs,
            token_norm: self.token_norm.weight,
            hidden_norm: self.hidden_norm.weight,
            positions: arrays.positions,
            owners: arrays.owners,
            first_rows: arrays.first_rows,
            tables: arrays.tables,
            table_width: arrays.table_width as i32,
            eps: self.token_norm.eps,
            n: self.norm_len(),
        }
        .launch(step.queue, m)?;
        step.linear(&self.fc, held.pairs, m, step.buffers.x)
    }

    /// The entries of a round, one per sequence, and their outputs in `normed`.
    fn forward(&self, model: &Model, step: &Step<'_>, before: Before) -> Result<(), DeviceError> {
        self.enter(model, step, before)?;
        self.layer.forward(step, &self.held.kept, 0)?;
        let norm = RmsNorm {
            out: self.held.normed,
            x: step.buffers.x,
            rows: Ptr::null(),
            weight: self.norm.weight,
            eps: self.norm.eps,
            n: self.norm_len(),
            faults: Ptr::null(),
            op: 0,
        };
        norm.launch(step.queue, step.arrays.num_rows)
    }

    /// Draws what is wanted of each, one token of every sequence at a time: each entry follows on what the head
    /// itself made of the one before, but for the first, which follows on the model.
    pub(super) fn propose<'a>(
        &self,
        queue: &Queue,
        model: &Model,
        rounds: &mut Rounds,
        mut asked: Vec<Asked<'a>>,
    ) -> Result<Vec<Asked<'a>>, CudaError> {
        let mut done = Vec::new();
        let mut before = Before::Kept;
        for round in 0.. {
            if asked.is_empty() {
                break;
            }
            let parts = asked.iter().map(|asked| part(asked, round));
            let parts: Vec<SeqPlan> = parts.collect();
            let tokens: Vec<TokenId> = asked.iter().map(|asked| asked.token(round)).collect();
            let arrays = rounds.upload(queue, &parts, &tokens)?;
            let buffers = self.buffers(&rounds.buffers);
            let step = model.step(queue, &arrays, &buffers);
            self.forward(model, &step, before)?;
            self.gather(queue, arrays.scored, arrays.num_scored, buffers.normed)?;
            if arrays.num_scored > 0 {
                model.logits(&step, buffers.normed, arrays.num_scored, rounds.logits)?;
            }
            let drawing = asked.iter_mut().filter(|asked| asked.drafts(round));
            rounds.draw(queue, drawing)?;
            let mut going_on = Vec::new();
            for (row, one) in std::mem::take(&mut asked).into_iter().enumerate() {
                if one.draws.is_over() {
                    done.push(one);
                } else {
                    going_on.push(row as u32);
                    asked.push(one);
                }
            }
            let rows = rounds.keep(queue, &going_on)?;
            self.gather(queue, rows, going_on.len(), self.held.before)?;
            before = Before::Own;
        }
        Ok(done)
    }

    /// Some rows of a round's outputs.
    fn gather(
        &self,
        queue: &Queue,
        rows: Ptr<u32>,
        num: usize,
        out: Ptr<f32>,
    ) -> Result<(), DeviceError> {
        let gather = GatherRows {
            out,
            x: self.held.normed,
            rows,
            n: self.norm_len(),
        };
        gather.launch(queue, num)
    }
}

fn part(asked: &Asked<'_>, round: usize) -> SeqPlan {
    let mut start = asked.ask().start;
    start.0 += round as u32;
    asked.part(start, 1, asked.drafts(round))
}
