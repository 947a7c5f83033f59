//! Plans: what they compute, read and write, held against what was committed and what blocks and rows hold; those that
//! were refused; and drafts that were not what they must be.

use super::Finding;
use crate::drafting::drafting;
use crate::life::Life;
use crate::mirror::reflection;
use crate::verdict::Stage;
use crate::world::Run;
use lockstep_core::{EngineFault, EventKind, Finish, RequestError};
use lockstep_step::{PlanError, PlanRule, SeqPlan};

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
        for mistake in reflection(&life, &run.options).mistakes {
            note(mistake.stage, mistake.step.0, mistake.what);
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
            && let Some(stage) = of_fault(fault)
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
fn of_fault(fault: &EngineFault) -> Option<Stage> {
    match fault {
        EngineFault::Sequence { detail, .. } if detail.contains("none is left") => {
            Some(Stage::Speculation)
        }
        EngineFault::UnknownStep { .. } | EngineFault::MasksTooEarly { .. } => Some(Stage::Overlap),
        _ => None,
    }
}
