//! Models that draft, beside the model. Each computes every plan too, into its own part of the same blocks
//! and rows, and answers from there what it is asked between two steps.
//!
//! Nothing here may change what the model computes: a drafter reads the model's results and writes none.

mod model;
mod mtp;

use crate::batch::{Batch, Machine};
use crate::model::{Memory, Model, Mtp, MtpMemory, Probe};
use lockstep_numerics::sampler::Sampler;
use lockstep_sampling::ProposalDraws;
use lockstep_step::{
    ModelDrafter, Pos, Proposal, ProposalPlan, QueryToken, RowPlan, SamplingParams, SeqPlan,
    SeqProposalPlan, TokenId,
};
pub(crate) use model::DraftModel;

/// The drafters that are loaded.
#[derive(Default)]
pub(crate) struct Drafters {
    pub(crate) mtp: Option<(Mtp, MtpMemory)>,
    pub(crate) draft_model: Option<DraftModel>,
    // What the model made of the rows of the last step: (rows, hidden).
    outputs: Vec<f32>,
}

impl Drafters {
    pub(crate) fn has(&self, drafter: ModelDrafter) -> bool {
        match drafter {
            ModelDrafter::Mtp => self.mtp.is_some(),
            ModelDrafter::DraftModel => self.draft_model.is_some(),
        }
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
            let m = batch.num_rows();
            model.normed(machine, m, memory, &mut self.outputs);
            let outputs = &self.outputs[..m * model.hidden()];
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
        let asked_of = |drafter| -> Vec<Asked<'_>> {
            let seqs = plan.seqs.iter().enumerate();
            let seqs = seqs.filter(|(_, ask)| ask.drafter == drafter);
            seqs.map(|(idx, ask)| Asked::new(idx, ask)).collect()
        };
        let mut done = Vec::new();
        if let Some((mtp, memory)) = &mut self.mtp {
            let asked = asked_of(ModelDrafter::Mtp);
            done.extend(mtp::propose(machine, (model, mtp), memory, sampler, asked));
        }
        if let Some(draft_model) = &mut self.draft_model {
            let asked = asked_of(ModelDrafter::DraftModel);
            done.extend(draft_model.propose(machine, sampler, asked));
        }
        let proposals = plan.seqs.iter().map(|ask| Proposal {
            seq: ask.seq,
            tokens: Vec::new(),
        });
        let mut proposals: Vec<Proposal> = proposals.collect();
        for asked in done {
            proposals[asked.idx].tokens = asked.draws.into_tokens();
        }
        proposals
    }
}

/// One sequence's question, in progress.
struct Asked<'a> {
    // Its place in the plan.
    idx: usize,
    ask: &'a SeqProposalPlan,
    draws: ProposalDraws,
}

impl<'a> Asked<'a> {
    fn new(idx: usize, ask: &'a SeqProposalPlan) -> Asked<'a> {
        Asked {
            idx,
            ask,
            draws: ProposalDraws::new(ask),
        }
    }

    /// A part of a plan that computes the `len` tokens from `start` on.
    fn part(&self, start: Pos, len: usize) -> SeqPlan {
        SeqPlan {
            seq: self.ask.seq,
            start,
            // Tokens are handed to the batch by themselves.
            query: vec![QueryToken::Known(TokenId(0)); len],
            num_drafts: 0,
            block_table: self.ask.block_table.clone(),
            rows: RowPlan::default(),
            scored: Vec::new(),
            sampling: SamplingParams::greedy(),
            counts: Vec::new(),
        }
    }
}
