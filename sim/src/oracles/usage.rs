//! What an answer says it took is what the engine drew for it, and a finish reason is one that its end deserves.

use super::Bench;
use crate::reference::Answers;
use crate::world::Run;
use lockstep_core::EventKind;
use lockstep_step::SeqId;
use std::collections::BTreeMap;

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    // Tokens drawn, by request.
    let mut drawn: BTreeMap<String, u64> = BTreeMap::new();
    for life in &run.lives {
        let life = life.open();
        let mut counts: BTreeMap<SeqId, u64> = BTreeMap::new();
        for event in &life.events {
            let is_token = matches!(event.kind, EventKind::Token { .. });
            *counts.entry(event.seq).or_default() += u64::from(is_token);
        }
        for (seq, submit) in &life.submits {
            let count = drawn.entry(submit.id.clone()).or_default();
            *count += counts.get(seq).copied().unwrap_or(0);
        }
    }
    for exchange in &run.exchanges {
        let wish = &exchange.wish;
        // What can't be read is another oracle's business.
        let Some(told) = exchange.told() else {
            continue;
        };
        let failed = told.choices.iter().any(|said| said.error.is_some());
        let (Some([_, completion, reasoning]), false) = (told.usage, failed) else {
            continue;
        };
        let Some(tokens) = drawn.get(&wish.id) else {
            bench.check(Some(&wish.id), Err("the engine never saw it".to_owned()));
            continue;
        };
        let choices = told.choices.len() as u64;
        let most = wish.body["max_tokens"]
            .as_u64()
            .unwrap_or(u64::MAX)
            .saturating_mul(choices);
        let result = match () {
            () if completion != *tokens => Err(format!("{completion} tokens told, {tokens} drawn")),
            () if reasoning > completion => {
                Err(format!("{reasoning} of {completion} tokens reason"))
            }
            () if completion > most => {
                Err(format!("{completion} tokens, asked for at most {most}"))
            }
            () => Ok(()),
        };
        bench.check(Some(&wish.id), result);
    }
}
