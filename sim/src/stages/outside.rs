//! Who is to blame where every stage said what it should: what shows only outside, in who answers whom, in what, and when.

use crate::life::Life;
use crate::options::Feature;
use crate::oracles::{Complaint, Judgement};
use crate::verdict::Stage;
use crate::world::Run;
use lockstep_core::EngineFault;

/// The stage that the complaints are about.
pub(super) fn blame(run: &Run, judgement: &Judgement) -> Option<(Stage, String)> {
    let first = judgement.complaints.first()?;
    let lives = || run.lives.iter().map(|life| life.open());
    if let Some(what) = lives().find_map(|life| fault_of_a_left_sequence(&life)) {
        return Some((Stage::Liveness, what));
    }
    if let Some(what) = lives().find_map(|life| ended_by_itself(run, &life)) {
        return Some((Stage::Liveness, what));
    }
    let is_broken = |complaint: &&Complaint| {
        complaint.oracle == "conservation" && !complaint.what.starts_with("at the end")
    };
    if let Some(complaint) = judgement.complaints.iter().find(is_broken) {
        return Some((Stage::Cache, complaint.what.clone()));
    }
    let is_stuck = |complaint: &&Complaint| complaint.oracle == "liveness";
    if let Some(complaint) = judgement.complaints.iter().find(is_stuck) {
        return Some((Stage::Liveness, complaint.what.clone()));
    }
    let stage = match first.oracle {
        "conservation" => Stage::Cache,
        "canary" => Stage::Speculation,
        "channels" => Stage::Tags,
        _ => Stage::Output,
    };
    Some((stage, first.what.clone()))
}

/// The engine stopped over a sequence whose reader had gone.
fn fault_of_a_left_sequence(life: &Life) -> Option<String> {
    match &life.fault {
        Some(EngineFault::Sequence { seq, .. }) if life.left.contains(seq) => {
            Some(format!("the engine stopped: {}", life.fault.as_ref()?))
        }
        _ => None,
    }
}

/// A life that nobody and nothing ended.
fn ended_by_itself(run: &Run, life: &Life) -> Option<String> {
    let ends = [Feature::Kill, Feature::Drain, Feature::DeviceLost];
    let was_told = ends.iter().any(|feature| run.options.has(*feature));
    let reason = life
        .ended
        .as_ref()
        .filter(|_| !was_told && life.fault.is_none())?;
    Some(format!(
        "the engine stopped, and nobody had told it to: {reason}"
    ))
}
