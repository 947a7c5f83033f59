//! From a choice of sequences to a plan: writes down every block and row by id, checks the rules, and
//! holds what the plan names. No counter of a sequence moves here.

use super::Engine;
use crate::in_flight::{MaskState, RunningSeq, RunningStep};
use crate::scheduler::{Budget, Part};
use crate::sequence::{Sequence, num_blocks_for};
use crate::{EngineFault, EventKind, RequestError};
use alloc::vec::Vec;
use lockstep_step::{
    MaskRow, Pos, QueryToken, RowPlan, RowWrite, SamplingParams, ScoredPosition, SeqId, SeqPlan,
    StepId, StepPlan,
};

/// How planning a step went.
pub(super) enum Attempt {
    Planned(StepPlan),
    NothingToDo,
    /// The rules refused the plan; the sequence at fault has ended.
    Refused,
}

impl Engine {
    pub(super) fn try_plan(&mut self) -> Result<Attempt, EngineFault> {
        let query_tokens_max = self.limits.query_tokens_max;
        let num_tokens = self.config.max_num_batched_tokens.min(query_tokens_max);
        let budget = Budget {
            num_tokens: num_tokens as usize,
            chunk_tokens: self.config.chunk_tokens_max as usize,
            num_seqs: self.config.max_num_seqs as usize,
            vocab_size: self.limits.vocab_size,
            rejected_drafts: self.config.rejected_drafts,
            is_overlapped: self.config.overlap,
        };
        let proposals = &mut self.proposals;
        let mut choice = self.scheduler.choose(budget, &self.in_flight, proposals)?;
        self.proposals.clear();
        for &id in &choice.preempted {
            self.totals.num_preemptions += 1;
            let at = self.scheduler.seqs[id].output.num_tokens();
            self.emit(id, at, EventKind::Preempted);
        }
        if choice.parts.is_empty() {
            return Ok(Attempt::NothingToDo);
        }
        let plan = self.write(&choice.parts);
        let checked = match &mut self.ledger {
            Some(ledger) => ledger.admit(&plan, &self.limits),
            None => self.checker.check(&plan, &self.limits),
        };
        if let Err(error) = checked {
            for part in &choice.parts {
                let kept = part.kept.iter().map(|(_, row)| row);
                for &row in kept.chain(&part.writes) {
                    self.scheduler.memory.rows.release(row)?;
                }
            }
            self.end_with(error.seq, RequestError::PlanRefused(error))?;
            return Ok(Attempt::Refused);
        }
        self.launch(&plan, &mut choice.parts)?;
        self.scheduler.spare_parts = choice.parts;
        Ok(Attempt::Planned(plan))
    }

    /// Writes a plan of these parts, into the memory of an earlier one where there is some.
    fn write(&mut self, parts: &[Part]) -> StepPlan {
        let mut seqs = core::mem::take(&mut self.spare.planned);
        seqs.resize_with(parts.len(), blank);
        let mut num_mask_rows = 0;
        for (part, planned) in parts.iter().zip(&mut seqs) {
            let seq = &self.scheduler.seqs[part.seq];
            write_part(part, seq, planned, &mut num_mask_rows);
        }
        StepPlan {
            step: StepId(self.totals.num_steps),
            seqs,
            num_mask_rows,
        }
    }

    /// Notes that a plan runs: what it names is held until its commit.
    fn launch(&mut self, plan: &StepPlan, parts: &mut Vec<Part>) -> Result<(), EngineFault> {
        self.totals.num_steps += 1;
        self.totals.num_steps_overlapped += u64::from(!self.in_flight.is_empty());
        self.totals.num_query_tokens += plan.num_query_tokens() as u64;
        self.scheduler.memory.blocks.begin_step();
        let mut seqs = core::mem::take(&mut self.spare.running);
        for (planned, part) in plan.seqs.iter().zip(parts.drain(..)) {
            let num_drafts = part.drafts.len();
            self.totals.num_drafts += num_drafts as u64;
            if let Some(row) = planned.rows.read {
                self.scheduler.memory.rows.lease(row)?;
            }
            if let Some(seq) = self.scheduler.seqs.get_mut(part.seq) {
                for draft in &part.drafts {
                    self.totals.drafts.note_proposed(draft.source);
                    seq.drafts.totals.note_proposed(draft.source);
                }
                let in_flight = part.standing.in_flight.as_ref();
                let num_before =
                    in_flight.map_or(seq.drafts.num_accepted(), |drawing| drawing.drafts.len());
                self.totals.num_shorter_parts += u64::from(num_drafts < num_before);
                #[cfg(planted)]
                {
                    seq.misdeeds.placeholder = None;
                }
                if !core::mem::replace(&mut seq.was_scheduled, true) {
                    self.emit(part.seq, 0, EventKind::Scheduled);
                }
            }
            seqs.push(RunningSeq {
                seq: part.seq,
                start: part.standing.start,
                num_committed: part.num_committed,
                drafts: part.drafts,
                num_scored: planned.scored.len(),
                #[cfg(test)]
                blocks: planned.block_table.clone(),
                read: planned.rows.read,
                kept: part.kept,
                writes: part.writes,
                masks: if planned.scored.iter().any(|scored| scored.mask.is_some()) {
                    MaskState::Pending
                } else {
                    MaskState::Free
                },
            });
        }
        self.in_flight.push(RunningStep {
            step: plan.step,
            seqs,
        });
        Ok(())
    }
}

/// A part of a plan, with nothing in it.
fn blank() -> SeqPlan {
    SeqPlan {
        seq: SeqId(0),
        start: Pos(0),
        query: Vec::new(),
        num_drafts: 0,
        block_table: Vec::new(),
        rows: RowPlan::default(),
        scored: Vec::new(),
        sampling: SamplingParams::greedy(),
        counts: Vec::new(),
    }
}

/// Writes every field of a sequence's part, whatever was in it.
fn write_part(part: &Part, seq: &Sequence, planned: &mut SeqPlan, num_mask_rows: &mut u32) {
    let SeqPlan {
        seq: id,
        start,
        query,
        num_drafts,
        block_table,
        rows,
        scored,
        sampling,
        counts,
    } = planned;
    let standing = &part.standing;
    *id = part.seq;
    *start = Pos(standing.start as u32);
    query.clear();
    query.reserve(part.num_committed + part.drafts.len());
    standing.query(seq, part.num_committed, query);
    let drafts = part.drafts.iter().map(|draft| draft.token);
    query.extend(drafts.map(QueryToken::Known));
    *num_drafts = part.drafts.len() as u32;
    block_table.clear();
    let num_blocks = num_blocks_for(standing.start + query.len());
    block_table.extend_from_slice(&seq.block_table[..num_blocks]);
    let first_write = part.num_committed as u32 - 1;
    let kept = part.kept.iter().map(|&(idx, row)| (idx as u32, row));
    let writes = kept.chain((first_write..).zip(part.writes.iter().copied()));
    rows.read = standing.row;
    rows.writes.clear();
    rows.writes
        .extend(writes.map(|(query_idx, row)| RowWrite { query_idx, row }));
    let is_scored = part.num_committed == standing.num_uncomputed(seq);
    let is_constrained = seq.is_constrained(standing.num_in_flight());
    scored.clear();
    if is_scored {
        scored.extend((first_write..query.len() as u32).map(|query_idx| {
            let mask = is_constrained.then_some(MaskRow(*num_mask_rows));
            *num_mask_rows += u32::from(is_constrained);
            ScoredPosition { query_idx, mask }
        }));
    }
    *counts = match is_scored {
        true => seq.counts(standing.drafts()),
        false => Vec::new(),
    };
    sampling.clone_from(&seq.sampling);
}
