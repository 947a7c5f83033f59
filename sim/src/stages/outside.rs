//! Who is to blame where every stage said what it should: what shows only outside, in who answers whom, in
//! what, and when.

use crate::client::{BodyEnd, Outcome};
use crate::life::Life;
use crate::options::Feature;
use crate::oracles::{Complaint, Judgement};
use crate::verdict::Stage;
use crate::world::Run;
use lockstep_core::{EngineFault, EventKind};
use lockstep_server::said::Answer;

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
        "conservation" | "hits" => Stage::Cache,
        "canary" => Stage::Speculation,
        _ if is_moved(run) => Stage::Tags,
        _ => Stage::Output,
    };
    Some((stage, first.what.clone()))
}

/// The engine stopped over a sequence whose reader had gone.
fn fault_of_a_left_sequence(life: &Life) -> Option<String> {
    match &life.fault {
        Some(EngineFault::Sequence { seq, .. })
            if life.left.contains(seq) || life.ended_with.contains_key(seq) =>
        {
            Some(format!("the engine stopped: {}", life.fault.as_ref()?))
        }
        _ => None,
    }
}

/// A life that nobody and nothing ended.
fn ended_by_itself(run: &Run, life: &Life) -> Option<String> {
    let is_lost = run.options.has(Feature::DeviceLost);
    let reason = life.ended.as_ref();
    let reason = reason.filter(|_| !life.told && !is_lost && life.fault.is_none())?;
    Some(format!(
        "the engine stopped, and nobody had told it to: {reason}"
    ))
}

/// Whether some answer has the text that the engine made of it, in another channel.
fn is_moved(run: &Run) -> bool {
    run.exchanges.iter().any(|exchange| {
        let Outcome::Response {
            status: 200,
            body,
            end: BodyEnd::Complete,
            ..
        } = &exchange.outcome
        else {
            return false;
        };
        let wish = &exchange.wish;
        let told = match wish.is_stream() {
            true => Answer::stream(wish.route, body),
            false => Answer::whole(wish.route, 200, body),
        };
        let told = told.map(|answer| answer.choices).unwrap_or_default();
        told.iter().enumerate().any(|(choice, told)| {
            let made = run
                .lives
                .iter()
                .find_map(|life| made(&life.open(), &wish.id, choice));
            let Some((reasoning, content)) = made else {
                return false;
            };
            let bare = |text: &str| {
                text.replace("</think>", "")
                    .split_whitespace()
                    .collect::<String>()
            };
            let is_other = bare(&told.reasoning) != bare(&reasoning);
            let all_told = bare(&(told.reasoning.clone() + &told.content));
            is_other && all_told == bare(&(reasoning + &content))
        })
    })
}

/// Reasoning and content of a choice, as the engine made them.
fn made(life: &Life, id: &str, choice: usize) -> Option<(String, String)> {
    let mut submits = life.submits.iter();
    let (seq, _) = submits.find(|(_, submit)| submit.id == id && submit.choice == choice)?;
    let (mut reasoning, mut content) = (String::new(), String::new());
    for event in life.events.iter().filter(|event| event.seq == *seq) {
        match &event.kind {
            EventKind::Reasoning(text) => reasoning += text,
            EventKind::Content(text) => content += text,
            _ => {}
        }
    }
    Some((reasoning, content))
}
