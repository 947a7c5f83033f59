//! Models that draft, beside the model. Each computes every plan too, into its own part of the same blocks
//! and rows, and answers from there what it is asked between two steps.
//!
//! Nothing here may change what the model computes: a drafter reads the model's results and writes none.

mod model;
mod mtp;

use crate::batch::{Batch, Machine};
use crate::model::{Memory, Model, Mtp, MtpMemory, Probe};
use lockstep_numerics::sampler::Sampler;
use lockstep_sampling::{Asked, proposals};
use lockstep_step::{LayoutShape, ModelDrafter, Proposal, ProposalPlan, StepLayout};
pub(crate) use model::DraftModel;

/// The drafters that are loaded.
pub(crate) struct Drafters {
    pub(crate) mtp: Option<(Mtp, MtpMemory)>,
    pub(crate) draft_model: Option<DraftModel>,
    // What the model made of the rows of the last step: (rows, hidden).
    outputs: Vec<f32>,
    // Of what is computed between two steps.
    layout: StepLayout,
}

impl Drafters {
    /// None yet; what they compute by themselves is laid out in this shape.
    pub(crate) fn new(shape: LayoutShape) -> Drafters {
        Drafters {
            mtp: None,
            draft_model: None,
            outputs: Vec::new(),
            layout: StepLayout::new(shape),
        }
    }

    pub(crate) fn has(&self, drafter: ModelDrafter) -> bool {
        match drafter {
            ModelDrafter::Mtp => self.mtp.is_some(),
            ModelDrafter::DraftModel => self.draft_model.is_some(),
        }
    }

    /// Everything that is kept between steps.
    #[cfg(test)]
    pub(crate) fn contents(&self) -> Vec<f32> {
        let mut contents = Vec::new();
        if let Some((_, memory)) = &self.mtp {
            contents.extend(memory.contents());
        }
        if let Some(draft_model) = &self.draft_model {
            contents.extend(draft_model.contents());
        }
        contents
    }

    /// Bytes of weights, of all blocks and of all rows.
    pub(crate) fn num_bytes(&self) -> [usize; 3] {
        let mut sums = [0; 3];
        if let Some((mtp, memory)) = &self.mtp {
            sums[0] += mtp.num_bytes();
            sums[1] += memory.num_bytes();
        }
        if let Some(draft_model) = &self.draft_model {
            let own = draft_model.num_bytes();
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        sums
    }

    /// Computes a step that the model has just computed in `memory`. With a probe, logits go there.
    pub(crate) fn mirror(
        &mut self,
        machine: Machine<'_>,
        (model, memory): (&Model, &Memory),
        batch: &Batch<'_>,
        probe: Option<&mut Probe>,
    ) {
        if let Some((mtp, own)) = &mut self.mtp {
            model.normed(machine, batch, memory, &mut self.outputs);
            let outputs = &self.outputs[..batch.num_rows() * model.hidden()];
            match probe {
                Some(probe) => {
                    probe.mtp_logits = mtp.mirror_probed(machine, model, batch, outputs, own);
                }
                None => mtp.mirror(machine, model, batch, outputs, own),
            }
        }
        if let Some(draft_model) = &mut self.draft_model {
            draft_model.mirror(machine, batch);
        }
    }

    /// Answers a question that was checked, in its order. Who asks a drafter that isn't there gets nothing.
    pub(crate) fn propose(
        &mut self,
        machine: Machine<'_>,
        model: &Model,
        sampler: &mut Sampler,
        plan: &ProposalPlan,
    ) -> Vec<Proposal> {
        let mut done = Vec::new();
        if let Some((mtp, memory)) = &mut self.mtp {
            let asked = Asked::all_of(plan, ModelDrafter::Mtp);
            let buffers = (memory, &mut self.layout);
            done.extend(mtp::propose(machine, (model, mtp), buffers, sampler, asked));
        }
        if let Some(draft_model) = &mut self.draft_model {
            let asked = Asked::all_of(plan, ModelDrafter::DraftModel);
            let layout = &mut self.layout;
            done.extend(draft_model.propose(machine, layout, sampler, asked));
        }
        proposals(plan, done)
    }
}
