//! The harness put to the test by itself: what each oracle looks at is spoiled, one after another, and the oracle must
//! complain. One that doesn't would let a broken server look fine.

use crate::client::{BodyEnd, Outcome};
use crate::options::Options;
use crate::oracles::{ALL, judge};
use crate::reference::{Answers, answers};
use crate::world::{self, Run};

/// Spoils what an oracle looks at; false if this run has nothing of it.
type Spoil = fn(&mut Run, &mut Answers) -> bool;

/// By oracle.
const SPOILS: &[(&str, Spoil)] = &[
    ("plain", |_, answers| {
        let wanted = answers
            .values_mut()
            .filter_map(|answer| answer.as_mut().ok());
        let said = wanted.flat_map(|answer| answer.choices.first_mut());
        said.map(|said| said.content.insert(0, '~')).count() > 0
    }),
    ("streams", |run, _| {
        let mut streams = bodies(run).filter(|(is_stream, _)| *is_stream);
        streams
            .next()
            .map(|(_, body)| body.truncate(body.len() - 14))
            .is_some()
    }),
    ("usage", |run, _| {
        let mut lives = run.lives.iter();
        lives.any(|life| {
            let mut life = life.open();
            let first = life
                .events
                .iter()
                .position(|event| matches!(event.kind, lockstep_core::EventKind::Token { .. }));
            first.map(|idx| life.events.remove(idx)).is_some()
        })
    }),
    ("conservation", |run, _| {
        let last = run.lives.last();
        last.map(|life| life.open().stats.num_blocks_free += 1)
            .is_some()
    }),
    ("contents", |run, _| {
        run.lives.iter().any(|life| {
            let mut life = life.open();
            let plans = life.steps.values_mut().map(|step| &mut step.plan);
            let mut later = plans
                .flat_map(|plan| &mut plan.seqs)
                .filter(|seq| seq.start.0 > 0);
            // It goes on one position too early.
            later.next().map(|seq| seq.start.0 -= 1).is_some()
        })
    }),
    ("liveness", |run, _| {
        run.is_over = false;
        true
    }),
    ("hits", |run, _| {
        run.options
            .features
            .retain(|own| *own != crate::options::Feature::PrefixCache);
        run.lives
            .iter()
            .any(|life| life.open().stats.totals.num_cached_tokens > 0)
    }),
    ("metrics", |run, _| {
        let page = run.metrics.as_mut();
        page.map(|page| *page = page.replace("lockstep_steps_total{", "steps{"))
            .is_some()
    }),
    ("canary", |run, _| {
        run.lives.iter().any(|life| {
            let mut life = life.open();
            let wrong = life
                .proposals
                .iter_mut()
                .flat_map(|(_, _, proposals)| proposals);
            let wrong = wrong.flat_map(|proposal| &mut proposal.tokens);
            wrong.map(|token| token.0 ^= 1).count() > 0
        })
    }),
];

/// Bodies that came whole, and whether they are streams.
fn bodies(run: &mut Run) -> impl Iterator<Item = (bool, &mut Vec<u8>)> {
    run.exchanges.iter_mut().filter_map(|exchange| {
        let is_stream = exchange.wish.is_stream();
        match &mut exchange.outcome {
            Outcome::Response {
                status: 200,
                body,
                end: BodyEnd::Complete,
                ..
            } => Some((is_stream, body)),
            _ => None,
        }
    })
}

/// Spoils a run for each oracle, and says which of them noticed nothing. Empty is good.
pub fn unnoticed() -> Vec<String> {
    let mut missed = Vec::new();
    for (oracle, _) in ALL {
        let Some((_, spoil)) = SPOILS.iter().find(|(name, _)| name == oracle) else {
            missed.push(format!("{oracle}: nobody spoils anything for it"));
            continue;
        };
        let noticed = (0..SEEDS_MAX).find_map(|seed| {
            let Ok(mut run) = world::run(&Options::of(seed)) else {
                return Some(Err(format!("{oracle}: seed {seed} panicked")));
            };
            let wishes = run.exchanges.iter().map(|exchange| &exchange.wish);
            let mut answers = answers(&run.options, wishes);
            if !spoil(&mut run, &mut answers) {
                return None;
            }
            let complaints = judge(&run, &answers, ALL).complaints;
            let complained = complaints
                .iter()
                .any(|complaint| complaint.oracle == *oracle);
            complained.then_some(Ok(()))
        });
        match noticed {
            Some(Ok(())) => {}
            Some(Err(what)) => missed.push(what),
            None => missed.push(format!(
                "{oracle}: noticed nothing in {SEEDS_MAX} spoiled runs"
            )),
        }
    }
    missed
}

/// Runs that may have nothing to spoil.
const SEEDS_MAX: u64 = 20;
