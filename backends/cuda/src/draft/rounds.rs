//! What one round of drafting is computed in: its arrays, its rows of logits, and the few numbers that come back.

use super::SEQS_MAX;
use crate::CudaError;
use crate::device::Device;
use crate::draw::{self, Drawn};
use crate::memory::{Memory, Pinned, Ptr, Region};
use crate::ops::draw::DRAWN;
use crate::ops::embed::ResolveTokens;
use crate::queue::Queue;
use crate::step::{Arrays, Buffers, arrays_len, write_arrays};
use lockstep_sampling::Asked;
use lockstep_step::{LayoutShape, SeqPlan, StepLayout, TokenId};

pub(crate) struct Rounds {
    layout: StepLayout,
    staging: Pinned<u32>,
    arrays: Ptr<u32>,
    // Rows that go on, of the round before.
    kept_staging: Pinned<u32>,
    kept: Ptr<u32>,
    pub(super) buffers: Buffers,
    /// (SEQS_MAX, vocab_size)
    pub(super) logits: Ptr<f32>,
    asked: draw::DrawRequest,
    drawn: Drawn,
    tokens: Pinned<u32>,
    statuses: Pinned<u32>,
    rows_max: usize,
}

impl Rounds {
    /// For a model with so many tokens, in the buffers of a step; `x` of those belongs to the model.
    pub(crate) fn new(
        device: &Device,
        memory: &mut Memory,
        (buffers, logits): (Buffers, Ptr<f32>),
        (rows_max, table_width, vocab_size): (usize, usize, usize),
    ) -> Result<Rounds, CudaError> {
        let len = arrays_len(rows_max, table_width);
        let region = Region::Drafters;
        Ok(Rounds {
            layout: StepLayout::new(LayoutShape::Exact),
            staging: Pinned::zeroed(device, len)?,
            arrays: memory.claim(region, "arrays of a round", len)?,
            kept_staging: Pinned::zeroed(device, SEQS_MAX)?,
            kept: memory.claim(region, "rows that go on", SEQS_MAX)?,
            buffers,
            logits,
            asked: draw::DrawRequest::new(device, memory, (SEQS_MAX, vocab_size))?,
            drawn: Drawn::claim(memory, SEQS_MAX)?,
            tokens: Pinned::zeroed(device, SEQS_MAX)?,
            statuses: Pinned::zeroed(device, SEQS_MAX)?,
            rows_max,
        })
    }

    /// The most query tokens of a round.
    pub(crate) fn rows_max(&self) -> usize {
        self.rows_max
    }

    /// Uploads what a round computes. Nothing of an earlier round may be on its way.
    pub(super) fn upload(
        &mut self,
        queue: &Queue,
        seqs: &[SeqPlan],
        tokens: &[TokenId],
    ) -> Result<Arrays, CudaError> {
        self.layout.lay_out(seqs, tokens);
        let len = write_arrays(&self.layout, &[], self.staging.values_mut());
        queue.upload("arrays of a round", &self.staging, 0..len, self.arrays)?;
        let arrays = Arrays::of(&self.layout, self.arrays);
        ResolveTokens {
            tokens: self.buffers.tokens,
            known: arrays.known,
            refs: arrays.refs,
            drawn: self.drawn.tokens,
            num_rows: arrays.num_rows as i32,
        }
        .launch(queue)?;
        Ok(arrays)
    }

    /// Draws the next token of each sequence whose logits are there, in order, and waits.
    pub(super) fn draw<'a, 'b: 'a>(
        &mut self,
        queue: &Queue,
        drawing: impl Iterator<Item = &'a mut Asked<'b>>,
    ) -> Result<(), CudaError> {
        let mut drawing: Vec<&mut Asked<'_>> = drawing.collect();
        self.asked.clear();
        for (asked, row) in drawing.iter_mut().zip(0..) {
            if !self.asked.add_proposal(&asked.draws, row) {
                self.asked.skip();
                asked.draws.end();
            }
        }
        if !drawing.is_empty() {
            let inputs = (self.logits, self.buffers.tokens);
            self.asked.draw(queue, inputs, &self.drawn)?;
        }
        let what = "drafts";
        let num = drawing.len();
        queue.download(what, self.drawn.tokens, &mut self.tokens, num)?;
        queue.download(what, self.drawn.statuses, &mut self.statuses, num)?;
        queue.wait(what)?;
        let (tokens, statuses) = (self.tokens.values(), self.statuses.values());
        for (idx, asked) in drawing.into_iter().enumerate() {
            if asked.draws.is_over() {
                continue;
            }
            if statuses[idx] == DRAWN {
                asked.draws.push(TokenId(tokens[idx]));
            } else {
                asked.draws.end();
            }
        }
        Ok(())
    }

    /// Uploads which rows of a round go on.
    pub(super) fn keep(&mut self, queue: &Queue, rows: &[u32]) -> Result<Ptr<u32>, CudaError> {
        self.kept_staging.values_mut()[..rows.len()].copy_from_slice(rows);
        queue.upload(
            "rows that go on",
            &self.kept_staging,
            0..rows.len(),
            self.kept,
        )?;
        Ok(self.kept)
    }
}
