//! Requests in the engine's words: each is what the same body means to a server that runs nothing.

use super::Finding;
use super::asked::Asked;
use crate::life::{Life, Submit};
use crate::verdict::Stage;
use crate::world::Run;
use lockstep_core::Request;
use lockstep_step::SeqId;

pub(super) fn check(run: &Run) -> Vec<Finding> {
    let asked = Asked::of(run);
    let lives = run.lives.iter().enumerate();
    let found = lives.flat_map(|(idx, book)| {
        let life = book.open();
        let differ = life.submits.iter().filter_map(|(seq, submit)| {
            let what = differs(submit, &asked.request(submit)?)?;
            Some(Finding {
                stage: Stage::Package,
                life: idx,
                step: first_step(&life, *seq),
                what: format!("{} asked the engine for {what}", submit.id),
            })
        });
        differ.collect::<Vec<Finding>>()
    });
    found.collect()
}

fn first_step(life: &Life, seq: SeqId) -> Option<u64> {
    let mut steps = life.steps.iter();
    let found = steps.find(|(_, step)| step.plan.seqs.iter().any(|part| part.seq == seq));
    found.map(|(id, _)| id.0)
}

fn differs(told: &Submit, wanted: &Request) -> Option<String> {
    let parts = [
        (told.prompt != wanted.prompt, "another prompt"),
        (told.sampling != wanted.sampling, "other sampling"),
        (told.end_tokens != wanted.end_tokens, "other end tokens"),
        (
            told.stop_strings != wanted.stop_strings,
            "other stop strings",
        ),
        (told.max_tokens > wanted.max_tokens, "too many tokens"),
        (
            told.reasoning != wanted.reasoning,
            "another limit on reasoning",
        ),
        (told.cache_salt != wanted.cache_salt, "another salt"),
    ];
    let wrong = parts.iter().find(|(is_wrong, _)| *is_wrong);
    wrong.map(|(_, what)| format!("{what}: {told:?}"))
}
