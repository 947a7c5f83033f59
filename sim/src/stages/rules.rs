//! Rules of logits that count tokens: what a plan says was counted is what stands before its first scored position.

use super::Finding;
use super::turns::turns;
use crate::life::Life;
use crate::verdict::Stage;
use crate::world::Run;
use lockstep_step::{QueryToken, SeqId, TokenCount, TokenId};
use std::collections::BTreeMap;

pub(super) fn check(run: &Run) -> Vec<Finding> {
    let lives = run.lives.iter().enumerate();
    let found = lives.map(|(idx, book)| {
        let life = book.open();
        first(&life).map(|(step, what)| Finding {
            stage: Stage::Sampler,
            life: idx,
            step: Some(step),
            what,
        })
    });
    found.flatten().collect()
}

fn first(life: &Life) -> Option<(u64, String)> {
    let mut outputs: BTreeMap<SeqId, Vec<TokenId>> = BTreeMap::new();
    for turn in turns(life) {
        let output = outputs.entry(turn.part.seq).or_default();
        let Some(submit) = life.submits.get(&turn.part.seq) else {
            continue;
        };
        let part = turn.part;
        if let Some(first) = part.scored.first()
            && submit.sampling.has_penalties()
        {
            // What the planner could not know is not in it.
            let query = &part.query[..=first.query_idx as usize];
            let drawn = query
                .iter()
                .filter(|token| matches!(token, QueryToken::Drawn { .. }));
            let num_known = output.len() - drawn.count().min(output.len());
            let wanted = counts(&submit.prompt, &output[..num_known]);
            if part.counts != wanted {
                let what = format!("{:?} counts {:?}, wanted {wanted:?}", part.seq, part.counts);
                return Some((turn.step.0, what));
            }
        }
        output.extend(turn.draws.iter().map(|draw| draw.token));
    }
    None
}

fn counts(prompt: &[TokenId], output: &[TokenId]) -> Vec<TokenCount> {
    let mut counts: BTreeMap<TokenId, TokenCount> = BTreeMap::new();
    let prompt = prompt.iter().map(|&token| (token, true));
    let output = output.iter().map(|&token| (token, false));
    for (token, in_prompt) in prompt.chain(output) {
        let count = counts.entry(token).or_insert(TokenCount {
            token,
            in_prompt: false,
            output: 0,
        });
        count.in_prompt |= in_prompt;
        count.output += u32::from(!in_prompt);
    }
    counts.into_values().collect()
}
