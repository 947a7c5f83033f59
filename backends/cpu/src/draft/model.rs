//! A second, smaller model that drafts. It has keys, values and recurrent state of its own under the ids of
//! the model's, and goes on from there by itself when it is asked.

use crate::batch::{Batch, Machine};
use crate::load::Loader;
use crate::model::{Memory, Model, Wanted, num_state_layers};
use crate::watch::Watch;
use lockstep_numerics::sampler::Sampler;
use lockstep_package::LoadError;
use lockstep_sampling::{Asked, Going};
use lockstep_step::{BackendLimits, RowId, SeqPlan, StepLayout};

/// Sequences that draft together, where the draft model has recurrent state.
const SEQS_MAX: usize = 32;

pub(crate) struct DraftModel {
    model: Model,
    memory: Memory,
    // The first of the rows that no plan names: two per sequence that drafts, in turn read and written.
    // None if the draft model has no recurrent state.
    first_row: Option<u32>,
}

impl DraftModel {
    /// Loads a draft model for a model with these limits.
    pub(crate) fn load(loader: &Loader<'_>, limits: &BackendLimits) -> Result<Self, LoadError> {
        let config = loader.config();
        let has_rows = num_state_layers(config) > 0;
        if has_rows && limits.num_rows == 0 {
            let message =
                "it has recurrent state, and plans name no rows for a model that has none";
            let message = message.to_string();
            return Err(LoadError::DraftModel { message });
        }
        let num_rows = limits.num_rows as usize + 2 * SEQS_MAX;
        Ok(DraftModel {
            model: Model::load(loader, limits.seq_len_max as usize)?,
            memory: Memory::new(config, limits.num_blocks as usize, num_rows),
            first_row: has_rows.then_some(limits.num_rows),
        })
    }

    /// Everything that is kept between steps.
    #[cfg(test)]
    pub(crate) fn contents(&self) -> impl Iterator<Item = f32> {
        self.memory.contents()
    }

    /// Bytes of weights, of all blocks and of all rows.
    pub(crate) fn num_bytes(&self) -> [usize; 3] {
        [
            self.model.num_bytes(),
            self.memory.cache.num_bytes(),
            self.memory.rows.num_bytes(),
        ]
    }

    /// The rows of the sequence of this place among those that draft together.
    fn own_rows(&self, place: usize) -> Option<[RowId; 2]> {
        let first = self.first_row? + 2 * place as u32;
        Some([RowId(first), RowId(first + 1)])
    }

    /// Computes a step of the model.
    pub(crate) fn mirror(&mut self, machine: Machine<'_>, batch: &Batch<'_>) {
        self.run(machine, batch, &[], &mut []);
    }

    fn run(
        &mut self,
        machine: Machine<'_>,
        batch: &Batch<'_>,
        selected: &[u32],
        logits: &mut [f32],
    ) {
        // Whatever is not finite ends a proposal when it is drawn from.
        let mut watch = Watch::of(batch);
        let wanted = Wanted {
            selected,
            logits,
            probe: None,
        };
        self.model
            .forward(machine, batch, &mut self.memory, &mut watch, wanted);
    }

    /// Draws what is wanted of each.
    pub(super) fn propose<'a>(
        &mut self,
        machine: Machine<'_>,
        layout: &mut StepLayout,
        sampler: &mut Sampler,
        asked: Vec<Asked<'a>>,
    ) -> Vec<Asked<'a>> {
        let mut done = Vec::with_capacity(asked.len());
        let mut asked = asked.into_iter().peekable();
        while asked.peek().is_some() {
            let group = asked.by_ref().take(SEQS_MAX).collect();
            self.propose_together(machine, (layout, sampler), group, &mut done);
        }
        done
    }

    fn propose_together<'a>(
        &mut self,
        machine: Machine<'_>,
        (layout, sampler): (&mut StepLayout, &mut Sampler),
        group: Vec<Asked<'a>>,
        done: &mut Vec<Asked<'a>>,
    ) {
        let vocab_size = self.model.vocab_size();
        let mut logits = Vec::new();
        let mut going: Vec<Going<'a>> = group
            .into_iter()
            .enumerate()
            .map(|(idx, asked)| Going::new(asked, self.own_rows(idx)))
            .collect();
        while !going.is_empty() {
            let seqs: Vec<SeqPlan> = going.iter().map(Going::part).collect();
            let tokens = going.iter().flat_map(|going| &going.tokens).copied();
            layout.lay_out(&seqs, &tokens.collect::<Vec<_>>());
            let batch = Batch::new(layout);
            logits.resize(layout.scored().len() * vocab_size, 0.0);
            self.run(machine, &batch, layout.scored(), &mut logits);
            let drawn = going.into_iter().zip(logits.chunks_exact(vocab_size));
            going = Vec::new();
            for (mut one, logits) in drawn {
                one.asked.draws.draw(sampler, logits);
                if one.asked.draws.is_over() {
                    done.push(one.asked);
                } else {
                    one.go_on();
                    going.push(one);
                }
            }
        }
    }
}
