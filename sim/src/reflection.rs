//! A life as the mirror wants it.

use crate::life::Life;
use crate::options::Options;
use crate::verdict::Stage;
use lockstep_capture::mirror::{Asked, Blame, Recorded, Seen, reflect};
use lockstep_core::EventKind;
use std::collections::BTreeMap;

/// What the mirror sees of a server's life, once it is over.
pub fn reflection<'a>(life: &'a Life, options: &Options) -> &'a Seen {
    life.seen.get_or_init(|| look(life, options))
}

fn look(life: &Life, options: &Options) -> Seen {
    let filled: Vec<Option<Vec<bool>>> = life
        .steps
        .values()
        .map(|step| {
            let rows = step.masks.as_ref()?.rows.iter();
            Some(rows.map(Option::is_some).collect())
        })
        .collect();
    let steps = life
        .steps
        .values()
        .zip(&filled)
        .map(|(step, filled)| Recorded {
            plan: &step.plan,
            filled: filled.as_deref(),
            output: step.output.as_ref().and_then(|output| output.as_ref().ok()),
            is_ahead: step.is_ahead,
        });
    let asked = life.submits.iter().map(|(&seq, submit)| {
        let asked = Asked {
            prompt: &submit.prompt,
            salt: &submit.cache_salt,
            preempted: Vec::new(),
        };
        (seq, asked)
    });
    let mut asked: BTreeMap<_, _> = asked.collect();
    for event in &life.events {
        if let (EventKind::Preempted, Some(asked)) = (&event.kind, asked.get_mut(&event.seq)) {
            asked.preempted.push(event.at);
        }
    }
    let step_tokens_max = options
        .engine
        .max_num_batched_tokens
        .min(options.limits.query_tokens_max);
    reflect(&steps.collect::<Vec<_>>(), &asked, step_tokens_max, true)
}

/// The stage that a verdict names for such a mistake.
pub fn stage(blame: Blame) -> Stage {
    match blame {
        Blame::Speculation => Stage::Speculation,
        Blame::Overlap => Stage::Overlap,
        Blame::Cache => Stage::Cache,
    }
}
