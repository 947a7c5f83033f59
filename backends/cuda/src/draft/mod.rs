//! Models that draft, beside the model. Each computes every plan too, into its own part of the same blocks and rows,
//! and answers from there what it is asked between two steps. Tokens are drawn on the device; the host sees them one
//! round after another. Nothing here may change what the model computes.

mod model;
mod mtp;
mod rounds;

pub(crate) use model::DraftModel;
pub(crate) use mtp::Mtp;
pub(crate) use rounds::Rounds;

use crate::CudaError;
use crate::DeviceError;
use crate::layers::Step;
use crate::memory::Memory;
use crate::model::Model;
use crate::queue::Queue;
use lockstep_sampling::{Asked, proposals};
use lockstep_step::{ModelDrafter, Proposal, ProposalPlan};

/// Sequences that draft together.
pub(crate) const SEQS_MAX: usize = 32;

/// The drafters that are loaded.
pub(crate) struct Drafters {
    pub(crate) mtp: Option<Mtp>,
    pub(crate) draft_model: Option<DraftModel>,
    /// What rounds of drafting are computed in.
    pub(crate) rounds: Rounds,
}

impl Drafters {
    pub(crate) fn has(&self, drafter: ModelDrafter) -> bool {
        match drafter {
            ModelDrafter::Mtp => self.mtp.is_some(),
            ModelDrafter::DraftModel => self.draft_model.is_some(),
        }
    }

    /// Bytes that all of them keep of one block.
    pub(crate) fn block_bytes(&self) -> usize {
        let mtp = self.mtp.as_ref().map_or(0, Mtp::block_bytes);
        mtp + self.draft_model.as_ref().map_or(0, DraftModel::block_bytes)
    }

    /// Claims memory for so many blocks of each.
    pub(crate) fn claim_blocks(
        &mut self,
        memory: &mut Memory,
        num_blocks: usize,
    ) -> Result<(), CudaError> {
        if let Some(mtp) = &mut self.mtp {
            mtp.claim_blocks(memory, num_blocks)?;
        }
        if let Some(draft_model) = &mut self.draft_model {
            draft_model.claim_blocks(memory, num_blocks)?;
        }
        Ok(())
    }

    /// Computes a step that the model has just computed.
    pub(crate) fn mirror(&self, model: &Model, step: &Step<'_>) -> Result<(), DeviceError> {
        if let Some(mtp) = &self.mtp {
            mtp.mirror(model, step)?;
        }
        if let Some(draft_model) = &self.draft_model {
            draft_model.mirror(step)?;
        }
        Ok(())
    }

    /// Answers a question that was checked, in its order. Who asks a drafter that isn't there gets nothing.
    pub(crate) fn propose(
        &mut self,
        queue: &Queue,
        model: &Model,
        plan: &ProposalPlan,
    ) -> Result<Vec<Proposal>, CudaError> {
        let (rounds, mut done) = (&mut self.rounds, Vec::new());
        if let Some(mtp) = &self.mtp {
            for group in groups(Asked::all_of(plan, ModelDrafter::Mtp), rounds.rows_max()) {
                done.extend(mtp.propose(queue, model, rounds, group)?);
            }
        }
        if let Some(draft_model) = &self.draft_model {
            for group in groups(
                Asked::all_of(plan, ModelDrafter::DraftModel),
                rounds.rows_max(),
            ) {
                done.extend(draft_model.propose(queue, rounds, group)?);
            }
        }
        Ok(proposals(plan, done))
    }
}

/// Sequences that draft together: few enough for the buffers of a step. A question that no step could hold is left
/// unanswered.
fn groups(asked: Vec<Asked<'_>>, rows_max: usize) -> Vec<Vec<Asked<'_>>> {
    let mut groups: Vec<Vec<Asked<'_>>> = Vec::new();
    let mut num_rows = 0;
    for asked in asked {
        let own = asked.ask().query.len();
        if own > rows_max {
            continue;
        }
        match groups.last_mut() {
            Some(group) if group.len() < SEQS_MAX && num_rows + own <= rows_max => {
                num_rows += own;
                group.push(asked);
            }
            _ => {
                num_rows = own;
                groups.push(vec![asked]);
            }
        }
    }
    groups
}
