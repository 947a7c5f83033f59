//! What counted of each step, sequence by sequence: parts that were planned ahead of a draft that was wrong
//! don't, nor does what was drawn without its mask or after a draft that differs.

use crate::life::Life;
use lockstep_step::{Draw, MaskSet, QueryToken, SeqId, SeqPlan, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// One sequence's part of a step that counted.
pub struct Turn<'a> {
    /// The step.
    pub step: StepId,
    /// The part.
    pub part: &'a SeqPlan,
    /// The masks of the step.
    pub masks: Option<&'a MaskSet>,
    /// The first draw that had to have a mask, has none, and would count if it had.
    pub unmasked: Option<usize>,
    /// What was drawn: the accepted drafts and the token after them; nothing where nothing is scored.
    pub draws: &'a [Draw],
}

/// All turns of a life, step by step.
pub fn turns(life: &Life) -> Vec<Turn<'_>> {
    // Where each sequence stands, and the step that had its last part.
    let mut stands: BTreeMap<SeqId, (usize, StepId)> = BTreeMap::new();
    let mut ended: BTreeSet<SeqId> = BTreeSet::new();
    let mut turns = Vec::new();
    for (id, step) in &life.steps {
        // A step that failed ends its sequences, and whatever was planned ahead for them is nobody's.
        if let Some(Err(_)) = &step.output {
            ended.extend(step.plan.seqs.iter().map(|part| part.seq));
        }
        let Some(Ok(output)) = &step.output else {
            continue;
        };
        for (part, answer) in step.plan.seqs.iter().zip(&output.seqs) {
            let (start, seq) = (part.start.0 as usize, part.seq);
            // One that begins further on than its sequence stands was planned from wrong drafts, in the step before.
            // A sequence that comes back after a while may have found more than it had.
            let is_void = stands
                .get(&seq)
                .is_some_and(|(computed, last)| start > *computed && last.0 + 1 == id.0);
            let Ok(draws) = &answer.draws else {
                continue;
            };
            if is_void || ended.contains(&seq) {
                continue;
            }
            let (count, unmasked) = counting(part, draws, step.masks.as_ref());
            let draws = &draws[..count];
            turns.push(Turn {
                step: *id,
                part,
                masks: step.masks.as_ref(),
                unmasked,
                draws,
            });
            let num_committed = part.query.len() - part.num_drafts as usize;
            let num_accepted = draws.len().saturating_sub(1);
            stands.insert(seq, (start + num_committed + num_accepted, *id));
        }
    }
    turns
}

/// How many draws count, and whether the next one doesn't for want of its mask alone.
fn counting(part: &SeqPlan, draws: &[Draw], masks: Option<&MaskSet>) -> (usize, Option<usize>) {
    let is_known = |idx: usize| match part.scored[idx].mask {
        Some(row) => masks.is_some_and(|masks| masks.get(row).is_some()),
        None => true,
    };
    let num_scored = draws.len().min(part.scored.len());
    for (idx, draw) in draws[..num_scored].iter().enumerate() {
        if !is_known(idx) {
            return (idx, Some(idx));
        }
        let next = part.scored.get(idx + 1);
        let draft = next.map(|next| part.query[next.query_idx as usize]);
        if draft != Some(QueryToken::Known(draw.token)) {
            return (idx + 1, None);
        }
    }
    (num_scored, None)
}
