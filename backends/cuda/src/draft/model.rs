//! A second, smaller model that drafts. It has keys, values and recurrent state of its own under the ids of the
//! model's, and goes on from there by itself when it is asked.

use super::{Rounds, SEQS_MAX};
use crate::layers::Step;
use crate::memory::{Memory, Ptr, Region};
use crate::model::{Kept, Logits, Model};
use crate::queue::Queue;
use crate::step::{Buffers, Widths};
use crate::weights::Loader;
use crate::{CudaError, DeviceError};
use lockstep_package::LoadError;
use lockstep_package::blueprint::Blueprint;
use lockstep_sampling::{Asked, Going};
use lockstep_step::{BackendLimits, RowId, SeqPlan, TokenId};

pub(crate) struct DraftModel {
    model: Model,
    kept: Kept,
    // The first of the rows that no plan names: two per sequence that drafts, in turn read and written. None if it has
    // no recurrent state.
    first_row: Option<u32>,
    // (rows, hidden): its own hidden states.
    x: Ptr<f32>,
    faults: Ptr<u32>,
    digests: Ptr<u64>,
}

impl DraftModel {
    /// Loads a draft model for a model with these limits.
    pub(crate) fn load(
        loader: &mut Loader<'_>,
        limits: &BackendLimits,
    ) -> Result<DraftModel, CudaError> {
        let config = loader.config();
        let has_rows = Blueprint::of(config).num_state_layers() > 0;
        if has_rows && limits.num_rows == 0 {
            let message =
                "it has recurrent state, and plans name no rows for a model that has none";
            let message = message.to_owned();
            return Err(LoadError::DraftModel { message }.into());
        }
        let num_rows = limits.num_rows as usize + 2 * SEQS_MAX;
        let rows_max = limits.query_tokens_max as usize;
        let region = Region::Drafters;
        Ok(DraftModel {
            model: Model::load(loader, limits.seq_len_max as usize)?,
            kept: Kept::claim_rows(loader.memory, config, (region, num_rows))?,
            first_row: has_rows.then_some(limits.num_rows),
            x: loader
                .memory
                .claim(region, "hidden states", rows_max * config.hidden_size)?,
            faults: loader.memory.claim(region, "faults", rows_max)?,
            digests: loader.memory.claim(region, "digests", SEQS_MAX)?,
        })
    }

    /// Bytes that it keeps of one block.
    pub(super) fn block_bytes(&self) -> usize {
        self.kept.block_bytes()
    }

    /// Claims memory for so many blocks.
    pub(super) fn claim_blocks(
        &mut self,
        memory: &mut Memory,
        num_blocks: usize,
    ) -> Result<(), CudaError> {
        self.kept
            .claim_blocks(memory, (Region::Drafters, num_blocks))
    }

    /// How wide the buffers of a step have to be.
    pub(crate) fn widths(&self) -> Widths {
        self.model.widths()
    }

    /// The buffers of a step, with its own in place of what the model still needs.
    fn buffers(&self, of_step: &Buffers) -> Buffers {
        Buffers {
            x: self.x,
            faults: self.faults,
            ..*of_step
        }
    }

    /// The rows of the sequence of this place among those that draft together.
    fn own_rows(&self, place: usize) -> Option<[RowId; 2]> {
        let first = self.first_row? + 2 * place as u32;
        Some([RowId(first), RowId(first + 1)])
    }

    /// Computes a step of the model.
    pub(super) fn mirror(&self, step: &Step<'_>) -> Result<(), DeviceError> {
        let buffers = self.buffers(step.buffers);
        let own = self.model.step(step.queue, step.arrays, &buffers);
        self.model.forward(&own, &self.kept)
    }

    /// Draws what is wanted of each.
    pub(super) fn propose<'a>(
        &self,
        queue: &Queue,
        rounds: &mut Rounds,
        group: Vec<Asked<'a>>,
    ) -> Result<Vec<Asked<'a>>, CudaError> {
        let mut done = Vec::with_capacity(group.len());
        let going = group.into_iter().enumerate();
        let mut going: Vec<Going<'a>> = going
            .map(|(idx, asked)| Going::new(asked, self.own_rows(idx)))
            .collect();
        while !going.is_empty() {
            let seqs: Vec<SeqPlan> = going.iter().map(Going::part).collect();
            let tokens = going.iter().flat_map(|going| &going.tokens).copied();
            let tokens: Vec<TokenId> = tokens.collect();
            let arrays = rounds.upload(queue, &seqs, &tokens)?;
            let buffers = self.buffers(&rounds.buffers);
            let step = self.model.step(queue, &arrays, &buffers);
            self.model.forward(&step, &self.kept)?;
            let logits = Logits {
                values: rounds.logits,
                digests: self.digests,
            };
            // Faults are noted where nobody looks: what is not finite ends a proposal when it is drawn from.
            self.model.head(&step, (0, arrays.num_scored), logits)?;
            rounds.draw(queue, going.iter_mut().map(|going| &mut going.asked))?;
            let (over, on) = going
                .into_iter()
                .partition(|going| going.asked.draws.is_over());
            let over: Vec<Going<'a>> = over;
            done.extend(over.into_iter().map(|going| going.asked));
            going = on;
            going.iter_mut().for_each(Going::go_on);
        }
        Ok(done)
    }
}
