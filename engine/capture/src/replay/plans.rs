//! Plans against the rules of plans, and against what was committed and written before them.

use crate::capture::{Capture, Step};
use crate::mirror::{Asked, Recorded, Seen, reflect, reflect_all};
use crate::record::{FinishRecord, News, Redaction};
use crate::stage::{Divergence, Stage, Verdict};
use lockstep_step::{
    BLOCK_LEN, Bitmask, Digest, Draw, MaskRow, PlanError, PlanRule, ScoredPosition, SeqError,
    SeqId, StepId, StepPlan, check_plan,
};
use std::collections::BTreeMap;

/// Judges plans, and finds out what became of each of their parts.
pub(super) fn look(capture: &Capture, verdict: &mut Verdict) -> Seen {
    let (mut num_parts, mut broken) = (0, None);
    for (id, step) in &capture.steps {
        num_parts += step.plan.seqs.len() as u64;
        let checked = check_plan(&renumbered(&step.plan), &capture.header.limits);
        if let Err(error) = checked {
            broken.get_or_insert((*id, error));
        }
    }
    if capture.header.redaction == Redaction::Tokens {
        judge(verdict, num_parts, 0, broken);
        verdict.unobserved(Stage::StateRow, "token ids are left out of the capture");
        return Seen::default();
    }
    let seen = reflection(capture, false);
    let wrong = seen.mistakes.first();
    let rules = match (&wrong, &broken) {
        (Some(wrong), Some((step, _))) if *step > wrong.step => None,
        _ => broken,
    };
    judge(verdict, num_parts, seen.num_looked, rules);
    if let Some(wrong) = wrong.filter(|_| verdict.guilty().is_none()) {
        let stage = match wrong.is_content {
            true => Stage::StateRow,
            false => Stage::Schedule,
        };
        let found = verdict.of(stage);
        found.num_agreeing = found.num_agreeing.saturating_sub(1);
        found.first = Some(Divergence {
            seq: wrong.seq,
            step: Some(wrong.step),
            pos: position(capture, wrong.step, wrong.seq),
            expected: "what was committed before".to_string(),
            found: wrong.what.clone(),
            near: Some(format!("{:?}", wrong.blame).to_lowercase()),
        });
    }
    seen
}

fn judge(
    verdict: &mut Verdict,
    num_parts: u64,
    num_looked: u64,
    broken: Option<(StepId, PlanError)>,
) {
    for (stage, num) in [(Stage::Schedule, num_parts), (Stage::StateRow, num_looked)] {
        let found = verdict.of(stage);
        (found.num_compared, found.num_agreeing) = (num, num);
        if num == 0 {
            found.unobserved =
                Some("nothing was read that an earlier step had written".to_string());
        }
    }
    if let Some((step, error)) = broken {
        let stage = match error.rule {
            PlanRule::Rows | PlanRule::WrittenRowShared | PlanRule::RowLength => Stage::StateRow,
            PlanRule::BlockFilled | PlanRule::WrittenBlockShared => Stage::StateRow,
            _ => Stage::Schedule,
        };
        let found = verdict.of(stage);
        found.num_agreeing = found.num_agreeing.saturating_sub(1);
        found.first = Some(Divergence {
            seq: error.seq,
            step: Some(step),
            pos: None,
            expected: format!("a plan that keeps the rule {}", error.rule.name()),
            found: error.detail.clone(),
            near: Some(error.rule.name().to_string()),
        });
    }
}

fn position(capture: &Capture, step: StepId, seq: SeqId) -> Option<u32> {
    let parts = &capture.steps.get(&step)?.plan.seqs;
    let part = parts.iter().find(|part| part.seq == seq)?;
    Some(part.start.0)
}

/// A plan with its mask rows counted from 0: parts of others may have been left out of it, with their rows.
pub(super) fn renumbered(plan: &StepPlan) -> StepPlan {
    let mut plan = plan.clone();
    let scored = plan.seqs.iter().flat_map(|part| &part.scored);
    let mut rows: Vec<MaskRow> = scored.filter_map(|scored| scored.mask).collect();
    rows.sort_unstable();
    let is_whole = rows.len() == plan.num_mask_rows as usize;
    if is_whole {
        return plan;
    }
    plan.num_mask_rows = rows.len() as u32;
    for scored in plan.seqs.iter_mut().flat_map(|part| &mut part.scored) {
        let own = scored.mask.map(|row| rows.binary_search(&row));
        scored.mask = own.map(|at| MaskRow(at.unwrap_or_else(|at| at) as u32));
    }
    plan
}

/// What became of the parts of all steps, those after a wrong plan among them.
pub(crate) fn fates(capture: &Capture) -> Seen {
    reflection(capture, true)
}

fn reflection(capture: &Capture, goes_on: bool) -> Seen {
    let filled: Vec<Option<Vec<bool>>> = capture
        .steps
        .values()
        .map(|step| {
            let rows = step.masks.as_ref()?.iter();
            Some(rows.map(Option::is_some).collect())
        })
        .collect();
    let steps = capture.steps.values().zip(&filled);
    let steps = steps.filter(|(step, _)| has_shape(&step.plan));
    let steps: Vec<Recorded<'_>> = steps
        .map(|(step, filled)| Recorded {
            plan: &step.plan,
            filled: filled.as_deref(),
            output: step.output.as_ref().and_then(|output| output.as_ref().ok()),
            is_ahead: step.is_ahead,
        })
        .collect();
    let requests = capture.requests.iter();
    let mut asked: BTreeMap<SeqId, Asked<'_>> = requests
        .map(|(&seq, request)| {
            let asked = Asked {
                prompt: &request.prompt,
                salt: &request.cache_salt,
                preempted: Vec::new(),
            };
            (seq, asked)
        })
        .collect();
    for (_, event) in &capture.events {
        if let (News::Preempted, Some(asked)) = (&event.news, asked.get_mut(&event.seq)) {
            asked.preempted.push(event.at);
        }
    }
    let setting = |name: &str| {
        let found = capture.header.settings.iter().find(|own| own.0 == name);
        found.and_then(|(_, value)| value.parse::<u32>().ok())
    };
    let step_max = capture.header.limits.query_tokens_max;
    let step_max = setting("max_num_batched_tokens").map_or(step_max, |own| own.min(step_max));
    let is_whole = capture.header.is_whole;
    match goes_on {
        true => reflect_all(&steps, &asked, step_max, is_whole),
        false => reflect(&steps, &asked, step_max, is_whole),
    }
}

/// Whether a plan is one that can be gone through at all. One that isn't breaks a rule, and was never computed.
fn has_shape(plan: &StepPlan) -> bool {
    plan.seqs.iter().all(|part| {
        let covered = part.block_table.len() as u64 * u64::from(BLOCK_LEN);
        let end = u64::from(part.start.0) + part.query.len() as u64;
        (part.num_drafts as usize) < part.query.len() && end <= covered
    })
}

/// A draw that a sequence grew by, as it was recorded, or the error that ended it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Committed {
    /// The step that drew it.
    pub(crate) step: StepId,
    /// Of its mask; None where the position had none that forbids anything, or its row was empty.
    pub(crate) mask: Option<Digest>,
    /// The draw.
    pub(crate) draw: Result<Draw, SeqError>,
}

/// All of them, by sequence.
pub(crate) fn committed(capture: &Capture, seen: &Seen) -> BTreeMap<SeqId, Vec<Committed>> {
    let free = free_mask(capture.header.limits.vocab_size);
    let mut all: BTreeMap<SeqId, Vec<Committed>> = BTreeMap::new();
    for (id, step) in &capture.steps {
        let Some(Ok(output)) = &step.output else {
            continue;
        };
        for (part, answer) in step.plan.seqs.iter().zip(&output.seqs) {
            let Some(fate) = seen.fates.get(&(*id, part.seq)).filter(|own| own.counts) else {
                continue;
            };
            let own = all.entry(part.seq).or_default();
            match &answer.draws {
                Ok(draws) => {
                    let draws = draws.iter().take(fate.num_drawn).enumerate();
                    own.extend(draws.map(|(idx, draw)| Committed {
                        step: *id,
                        mask: mask(step, part.scored.get(idx)).filter(|own| *own != free),
                        draw: Ok(draw.clone()),
                    }));
                }
                Err(error) => own.push(Committed {
                    step: *id,
                    mask: None,
                    draw: Err(error.clone()),
                }),
            }
        }
    }
    all
}

/// How each sequence ended that did, with the step that was answered last before that. What a later step drew for it,
/// or one of these past its last token, is nobody's.
pub(crate) fn ends(capture: &Capture) -> BTreeMap<SeqId, (Option<StepId>, &FinishRecord)> {
    let ends = capture.events.iter().filter_map(|(step, event)| {
        let News::Finished(finished) = &event.news else {
            return None;
        };
        Some((event.seq, (*step, finished)))
    });
    ends.collect()
}

/// Of the mask of a position, if it had one that was filled.
pub(crate) fn mask(step: &Step, scored: Option<&ScoredPosition>) -> Option<Digest> {
    let row = scored?.mask?;
    *step.masks.as_ref()?.get(row.0 as usize)?
}

/// The digest of a mask that allows every token. It is as good as none: a step that is planned ahead has one where
/// reasoning might have had to be closed by force.
pub(crate) fn free_mask(vocab_size: u32) -> Digest {
    Bitmask::all(vocab_size).digest()
}
