//! Everything ends: each script, each request once all faults are over, each sequence whose reader stays, and each that
//! was left is given up at once. Garbage is never answered with success.

use super::Bench;
use crate::client::{BodyEnd, Outcome};
use crate::life::Submit;
use crate::options::Feature;
use crate::reference::Answers;
use crate::world::{CALM_MAX, Run};
use lockstep_core::EventKind;
use lockstep_step::SeqId;
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    let over = match run.is_over {
        true => Ok(()),
        false => Err(format!(
            "not everybody was answered, {CALM_MAX:?} after all was calm"
        )),
    };
    bench.check(None, over);
    for what in &run.complaints {
        bench.check(None, Err(what.clone()));
    }
    for id in &run.calm {
        let is_busy = |status: u16| matches!(status, 429 | 503);
        let answered = run.exchanges.iter().any(|exchange| {
            let own = exchange.wish.id.strip_prefix(id.as_str());
            let is_own = own.is_some_and(|number| number.starts_with('t'));
            let Outcome::Response { status, end, .. } = &exchange.outcome else {
                return false;
            };
            is_own && *end == BodyEnd::Complete && !is_busy(*status)
        });
        bench.check(
            Some(id),
            match answered {
                true => Ok(()),
                false => Err("never answered, though nothing was wrong any more".to_owned()),
            },
        );
    }
    left(run, bench);
    let Some(last) = run.lives.last().map(|life| life.open()) else {
        bench.check(None, Err("no server ever ran".to_owned()));
        return;
    };
    if last.ended.is_some() {
        return;
    }
    let finished: BTreeSet<SeqId> = last
        .events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Finished(_)))
        .map(|event| event.seq)
        .collect();
    for (seq, submit) in &last.submits {
        let result = match finished.contains(seq) {
            true => Ok(()),
            false => Err(format!("choice {} of it never ended", submit.choice)),
        };
        bench.check(Some(&submit.id), result);
    }
    // A sequence that was left says nothing more.
    bench.check(
        None,
        match last.stats.totals.num_submitted == last.stats.totals.num_finished {
            true => Ok(()),
            false => Err(format!(
                "{} sequences were taken, {} ended",
                last.stats.totals.num_submitted, last.stats.totals.num_finished
            )),
        },
    );
}

/// How long news may take between a client and the engine, steps and packets aside.
const NOTICE: Duration = Duration::from_millis(5);

/// Whether nothing keeps news between clients and the engine for long.
pub(super) fn is_prompt(run: &Run) -> bool {
    let late = [
        Feature::Partition,
        Feature::Freeze,
        Feature::Kill,
        Feature::SlowNetwork,
        Feature::SlowStep,
        Feature::ClockJump,
    ];
    !late.iter().any(|feature| run.options.has(*feature))
}

/// How long news may take.
pub(super) fn notice(run: &Run) -> Duration {
    let packet = Duration::from_millis(run.options.latency_ms_max);
    4 * (packet + Duration::from_micros(run.options.step_us)) + NOTICE
}

/// Whoever goes away is noticed, and its sequences are given up before they would have ended.
fn left(run: &Run, bench: &mut Bench<'_>) {
    if !is_prompt(run) {
        return;
    }
    let bound = notice(run);
    for exchange in &run.exchanges {
        let left = match &exchange.outcome {
            Outcome::Left => true,
            Outcome::Response { end, .. } => *end == BodyEnd::Left,
            _ => false,
        };
        let lives = run.lives.iter().map(|life| life.open()).filter(|_| left);
        for life in lives {
            let own = |submit: &Submit| submit.id == exchange.wish.id;
            for (seq, _) in life.submits.iter().filter(|(_, submit)| own(submit)) {
                let ended = life.ends.get(seq).copied().unwrap_or_default();
                let ran_on = ended.saturating_sub(exchange.over);
                let is_right = ran_on <= bound || life.left.contains(seq);
                let what = || format!("it ran on for {ran_on:?} after its client had gone");
                let result = if is_right { Ok(()) } else { Err(what()) };
                bench.check(Some(&exchange.wish.id), result);
            }
        }
    }
}
