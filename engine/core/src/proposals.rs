//! Drafts of models, between being asked for and being planned. They are kept by place in the text and not in
//! the sequence: what isn't taken by the very next plan is forgotten.

use crate::EngineFault;
use crate::draft::{Draft, DraftBounds, DraftSource};
use crate::in_flight::InFlight;
use crate::scheduler::{Scheduler, propose};
use crate::sequence::{Sequence, num_blocks_for};
use crate::standing::Standing;
use alloc::{collections::BTreeMap, vec::Vec};
use lockstep_step::{BackendLimits, Pos, Proposal, ProposalPlan, SeqId, SeqProposalPlan, planted};

/// What has been proposed for the next step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proposals {
    by_seq: BTreeMap<SeqId, Proposed>,
}

#[derive(Clone, Debug)]
struct Proposed {
    /// Length of the text that the drafts follow.
    len: usize,
    drafts: Vec<Draft>,
    /// Who was asked for more.
    asked: Option<(DraftSource, usize)>,
}

impl Proposals {
    /// The drafts for a sequence, if they follow its text as it stands.
    pub(crate) fn take(
        &mut self,
        id: SeqId,
        seq: &Sequence,
        standing: &Standing,
    ) -> Option<Vec<Draft>> {
        // Planted: vllm-project/vllm#31944.
        if planted!(PausedRequestDraftsOnReturn) {
            let proposed = self
                .by_seq
                .get(&id)
                .filter(|_| standing.in_flight.is_none());
            return proposed.map(|proposed| proposed.drafts.clone());
        }
        let proposed = self.by_seq.remove(&id)?;
        let is_right = proposed.len == seq.token_ids.len() && standing.in_flight.is_none();
        is_right.then_some(proposed.drafts)
    }

    /// What isn't taken by one plan is nothing for the next.
    pub(crate) fn clear(&mut self) {
        if planted!(PausedRequestDraftsOnReturn) {
            return;
        }
        self.by_seq.clear();
    }

    /// Appends what a model proposed to what was there before it. What nobody asked for is dropped.
    pub(crate) fn add(&mut self, proposal: Proposal) {
        let proposed = self.by_seq.get_mut(&proposal.seq);
        let Some((proposed, (source, num_max))) =
            proposed.and_then(|proposed| proposed.asked.take().map(|asked| (proposed, asked)))
        else {
            return;
        };
        let tokens = proposal.tokens.into_iter().take(num_max);
        proposed
            .drafts
            .extend(tokens.map(|token| Draft { token, source }));
    }

    /// Asks for each running sequence that a model may draft for: it has one token left to compute, nothing in
    /// flight, and no guess of another drafter. Takes the blocks that the drafts will need.
    pub(crate) fn ask(
        &mut self,
        scheduler: &mut Scheduler,
        in_flight: &InFlight,
        limits: &BackendLimits,
    ) -> Result<ProposalPlan, EngineFault> {
        self.clear();
        let num_running = scheduler.num_running();
        let mut seqs = Vec::new();
        for id in asking(scheduler) {
            let Some(seq) = scheduler.seqs.get_mut(id) else {
                continue;
            };
            let Some(model) = seq.drafts.model(scheduler.models) else {
                continue;
            };
            let standing = Standing::of(id, seq, in_flight);
            let is_committed = standing.start > 0 && standing.start == seq.num_computed_tokens;
            if !is_committed || standing.num_uncomputed(seq) != 1 {
                continue;
            }
            let draft_rows = scheduler.memory.rows_for_drafts(num_running);
            let bounds = DraftBounds {
                num_max: seq.output.drafts_max(0).min(draft_rows),
                vocab_size: limits.vocab_size,
                num_running,
            };
            let drafts = propose(seq, &standing, &scheduler.recent, bounds);
            let has_guess = drafts.iter().any(|draft| draft.source.is_guess());
            let num_left = bounds.num_max - drafts.len();
            let num_max = if has_guess {
                0
            } else {
                model.num_max.min(num_left)
            };
            let end = seq.token_ids.len() + drafts.len() + num_max;
            let table = &mut seq.block_table;
            // The last proposal is computed by the step that it is a draft of, and no sooner.
            let has_room =
                num_max > 0 && scheduler.memory.extend(table, num_blocks_for(end - 1))?;
            if has_room {
                let forced = drafts.iter().map(|draft| draft.token);
                let last = seq.token_ids.last().copied();
                seqs.push(SeqProposalPlan {
                    seq: id,
                    drafter: model.drafter,
                    start: Pos(standing.start as u32),
                    query: last.into_iter().chain(forced.clone()).collect(),
                    num_max: num_max as u32,
                    block_table: table[..num_blocks_for(end - 1)].to_vec(),
                    row: standing.row,
                    sampling: seq.sampling.clone(),
                    counts: seq.counts(forced),
                });
            }
            let proposed = Proposed {
                len: seq.token_ids.len(),
                drafts,
                asked: has_room.then(|| (model.drafter.into(), num_max)),
            };
            self.by_seq.insert(id, proposed);
        }
        seqs.sort_by_key(|ask: &SeqProposalPlan| ask.seq);
        Ok(ProposalPlan { seqs })
    }
}

/// Running sequences that a model drafts for; mostly nobody.
fn asking(scheduler: &Scheduler) -> Vec<SeqId> {
    let asks = |id: &&SeqId| {
        let seq = scheduler.seqs.get(**id);
        seq.is_some_and(|seq| seq.drafts.model(scheduler.models).is_some())
    };
    scheduler.running().iter().filter(asks).copied().collect()
}
