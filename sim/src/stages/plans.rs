//! Plans: what they compute, read and write, held against what was committed and what blocks and rows hold; those that
//! were refused; and drafts that were not what they must be.

use super::Finding;
use crate::drafting::drafting;
use crate::life::{Life, Submit};
use crate::reflection::{self, reflection};
use crate::verdict::Stage;
use crate::world::Run;
use lockstep_core::{EngineFault, Event, EventKind, Finish, RequestError};
use lockstep_step::{BLOCK_LEN, PlanError, PlanRule, SeqId, SeqPlan, StepId};

pub(super) fn check(run: &Run) -> Vec<Finding> {
    let mut found = Vec::new();
    for (idx, book) in run.lives.iter().enumerate() {
        let life = book.open();
        let mut note = |stage, step: u64, what: String| {
            found.push(Finding {
                stage,
                life: idx,
                step: Some(step),
                what,
            });
        };
        for mistake in &reflection(&life, &run.options).mistakes {
            note(
                reflection::stage(mistake.blame),
                mistake.step.0,
                mistake.what.clone(),
            );
        }
        for event in &life.events {
            if let EventKind::Finished(finished) = &event.kind
                && let Finish::Error(RequestError::PlanRefused(error)) = &finished.finish
            {
                let last = last_part(&life, error);
                let step = last.map_or(0, |(step, _)| step + 1);
                let stage = of_rule(error, last.map(|(_, part)| part));
                note(stage, step, format!("a plan was refused: {error}"));
            }
        }
        if let Some(fault) = &life.fault
            && let Some(stage) = of_fault(&life, fault)
        {
            let last = life.steps.keys().next_back().map_or(0, |last| last.0);
            note(stage, last, format!("the engine stopped: {fault}"));
        }
        for wrong in drafting(&life, &run.options).wrong {
            note(wrong.stage, wrong.step.0, wrong.what);
        }
    }
    found
}

/// The last part of a sequence whose plan was refused.
fn last_part<'a>(life: &'a Life, error: &PlanError) -> Option<(u64, &'a SeqPlan)> {
    let parts = life.steps.iter().rev().flat_map(|(id, step)| {
        let parts = step.plan.seqs.iter();
        parts.map(move |part| (id.0, part))
    });
    parts.into_iter().find(|(_, part)| part.seq == error.seq)
}

/// Who writes plans that break this rule.
fn of_rule(error: &PlanError, last: Option<&SeqPlan>) -> Stage {
    let had_drafts = last.is_some_and(|last| last.num_drafts > 0);
    match error.rule {
        PlanRule::DraftSuffix | PlanRule::Scored => Stage::Speculation,
        PlanRule::QuerySize | PlanRule::TokenRange | PlanRule::SeqsAscend => Stage::Overlap,
        PlanRule::MaskRows => Stage::Grammar,
        PlanRule::RowLength | PlanRule::BlockFilled if had_drafts => Stage::Speculation,
        _ => Stage::Cache,
    }
}

/// Who breaks this invariant; none where it is no plan's.
fn of_fault(life: &Life, fault: &EngineFault) -> Option<Stage> {
    match fault {
        EngineFault::Sequence { detail, .. } if detail.contains("none is left") => {
            Some(Stage::Speculation)
        }
        // An answer that does not fit, while the next step was on its way.
        EngineFault::OutputShape { step, .. } => {
            let next = life.steps.get(&StepId(step.0 + 1));
            match next.is_some_and(|next| next.is_ahead) {
                true => Some(Stage::Overlap),
                false => Some(Stage::Kernel),
            }
        }
        EngineFault::UnknownStep { .. } | EngineFault::MasksTooEarly { .. } => Some(Stage::Overlap),
        _ => None,
    }
}

/// The stage of code that panicked while it planned: with a request to be admitted that fills blocks to their ends, the
/// cache found more than it may.
pub(super) fn of_panic(run: &Run) -> Option<Stage> {
    let life = run.lives.last()?.open();
    let parts = || life.steps.values().flat_map(|step| &step.plan.seqs);
    let fills_blocks = |seq: SeqId, submit: &Submit| {
        let events = life.events.iter().filter(|event| event.seq == seq);
        let is_token = |event: &&Event| matches!(event.kind, EventKind::Token { .. });
        let is_end = |event: &Event| matches!(event.kind, EventKind::Finished(_));
        let len = submit.prompt.len() + events.clone().filter(is_token).count();
        len.is_multiple_of(BLOCK_LEN as usize) && !events.clone().any(is_end)
    };
    let waits = |seq: SeqId| {
        let lost = |event: &Event| event.seq == seq && event.kind == EventKind::Preempted;
        !parts().any(|part| part.seq == seq) || life.events.iter().any(lost)
    };
    let mut submits = life.submits.iter();
    let found = submits.any(|(seq, submit)| fills_blocks(*seq, submit) && waits(*seq));
    found.then_some(Stage::Cache)
}
