//! A life as the mirror wants it.

use super::{Asked, Recorded, Seen, reflect};
use crate::life::Life;
use crate::options::Options;
use lockstep_core::EventKind;
use std::collections::BTreeMap;

/// What the mirror sees of a server's life, once it is over.
pub fn reflection<'a>(life: &'a Life, options: &Options) -> &'a Seen {
    life.seen.get_or_init(|| look(life, options))
}

fn look(life: &Life, options: &Options) -> Seen {
    let steps = life.steps.values().map(|step| Recorded {
        plan: &step.plan,
        masks: step.masks.as_ref(),
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
    reflect(&steps.collect::<Vec<_>>(), &asked, step_tokens_max)
}
