//! The masks of a step: lends matchers to jobs, and takes them back in whatever order the jobs end. A job
//! that doesn't come back ends its own sequence and no other.

use super::Engine;
use crate::constraint::Constraint;
use crate::in_flight::MaskState;
use crate::mask_job::{FilledRows, MaskDone, MaskJob, MaskJobId};
use crate::{EngineFault, RequestError, Totals};
use alloc::{collections::BTreeMap, vec, vec::Vec};
use lockstep_step::{Bitmask, MaskSet, SeqId, SeqPlan, StepPlan, TokenId, planted};

impl Engine {
    pub(super) fn lend_matchers(&mut self, plan: &StepPlan) -> Vec<MaskJob> {
        let oldest = self.in_flight.oldest().map_or(plan.step, |step| step.step);
        if oldest < plan.step {
            let step = plan.step;
            self.note(Err(EngineFault::MasksTooEarly { step, oldest }));
            return Vec::new();
        }
        let mut jobs = Vec::new();
        for planned in plan.seqs.iter().filter(|planned| has_rows(planned)) {
            // An aborted sequence needs no masks: its draws go nowhere.
            let (Some(part), Some(seq)) = (
                self.in_flight.get_mut(plan.step, planned.seq),
                self.scheduler.seqs.get_mut(planned.seq),
            ) else {
                continue;
            };
            if !part.counts_for(seq) {
                continue;
            }
            let Some(constraint) = &mut seq.constraint else {
                continue;
            };
            let depth = constraint.depth();
            let Some(matcher) = constraint.lend() else {
                continue;
            };
            part.masks = MaskState::Pending;
            let drafts = part.drafts.iter().map(|draft| draft.token);
            jobs.push(MaskJob {
                id: MaskJobId {
                    step: plan.step,
                    seq: planned.seq,
                },
                matcher,
                depth,
                num_rows: planned.scored.len(),
                drafts: drafts
                    .take_while(|&draft| !seq.output.is_end(draft))
                    .collect(),
                closing: seq.output.forced(),
                vocab_size: self.limits.vocab_size,
            });
        }
        jobs
    }

    pub(super) fn take_back(&mut self, plan: &StepPlan, done: Vec<MaskDone>) -> MaskSet {
        let mut masks = MaskSet {
            rows: vec![None; plan.num_mask_rows as usize],
        };
        let own = done.into_iter().filter(|done| done.id.step == plan.step);
        let mut done: BTreeMap<SeqId, MaskDone> = own.map(|done| (done.id.seq, done)).collect();
        for planned in plan.seqs.iter().filter(|planned| has_rows(planned)) {
            let done = done.remove(&planned.seq);
            // Whoever ended meanwhile takes its matcher along, and its rows stay empty.
            let (Some(part), Some(seq)) = (
                self.in_flight.get_mut(plan.step, planned.seq),
                self.scheduler.seqs.get_mut(planned.seq),
            ) else {
                continue;
            };
            // Planned ahead of a draft that was wrong: its draws go nowhere.
            if !part.counts_for(seq) {
                continue;
            }
            let filled = match &mut seq.constraint {
                Some(constraint) => settle(constraint, done),
                // A forced token is planned without drafts, so that there is one row.
                None => Ok(only(seq.output.forced(), self.limits.vocab_size)),
            };
            part.masks = match filled {
                Ok(filled) => place(filled, planned, &mut masks, &mut self.totals),
                Err(error) => MaskState::Failed(error),
            };
        }
        #[cfg(planted)]
        super::misdeeds::misplace(plan, &mut masks);
        masks
    }
}

fn has_rows(planned: &SeqPlan) -> bool {
    planned.scored.iter().any(|scored| scored.mask.is_some())
}

/// Takes a matcher back, and what its job says.
fn settle(constraint: &mut Constraint, done: Option<MaskDone>) -> Result<FilledRows, RequestError> {
    let lost = || RequestError::Matcher("its masks were not filled: the job is lost".into());
    let done = done.filter(|_| constraint.is_lent()).ok_or_else(lost)?;
    if let Some(matcher) = done.matcher {
        constraint.give_back(matcher);
    }
    done.filled.map_err(RequestError::Matcher)
}

/// Puts the rows of a sequence where the plan wants them.
fn place(
    filled: FilledRows,
    planned: &SeqPlan,
    masks: &mut MaskSet,
    totals: &mut Totals,
) -> MaskState {
    let num_rows = filled.masks.len();
    totals.num_mask_rows += num_rows as u64;
    totals.num_mask_rows_left_out += planned.scored.len().saturating_sub(num_rows) as u64;
    totals.num_rolled_back += u64::from(filled.num_rolled_back);
    for (scored, mask) in planned.scored.iter().zip(filled.masks) {
        if let Some(row) = scored.mask {
            masks.rows[row.0 as usize] = Some(mask);
        }
    }
    MaskState::Filled { num_rows }
}

/// The single row of a sequence without a matcher.
fn only(token: Option<TokenId>, vocab_size: u32) -> FilledRows {
    let mask = match token {
        Some(token) => {
            let mut mask = Bitmask::none(vocab_size);
            mask.allow(token);
            mask
        }
        // Planted: vllm-project/vllm-gaudi#1200.
        None if planted!(FreeRowsForbidAll) => only(Some(TokenId(0)), vocab_size).masks.remove(0),
        None => Bitmask::all(vocab_size),
    };
    FilledRows {
        masks: vec![mask],
        num_rolled_back: 0,
    }
}
