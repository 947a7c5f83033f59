//! A model that drafts and is never wrong on purpose proposes what is drawn, wherever nothing holds the sequence: less
//! acceptance than that is lost by somebody, though no answer shows it.

use super::Bench;
use crate::life::Life;
use crate::options::{Computes, Feature};
use crate::reference::Answers;
use crate::stages::drawn;
use crate::world::Run;
use lockstep_step::{Proposal, SeqProposalPlan, TokenId};

pub(super) fn judge(run: &Run, _: &Answers, bench: &mut Bench<'_>) {
    let is_perfect = run.options.has(Feature::PerfectDrafter);
    if !is_perfect || run.options.computes() != Computes::Fingerprint {
        return;
    }
    for (idx, life) in run.lives.iter().enumerate() {
        let life = life.open();
        let drawn = drawn(&life);
        for (plan, proposals) in &life.proposals {
            for (ask, proposal) in plan.seqs.iter().zip(proposals) {
                let Some(output) = drawn.get(&ask.seq) else {
                    continue;
                };
                if let Some(result) = agrees(&life, ask, proposal, output) {
                    bench.check(None, result.map_err(|what| format!("life {idx}: {what}")));
                }
            }
        }
    }
}

/// Whether a proposal is what was drawn after all, as far as that is known. None if it says nothing.
fn agrees(
    life: &Life,
    ask: &SeqProposalPlan,
    proposal: &Proposal,
    output: &[TokenId],
) -> Option<Result<(), String>> {
    let submit = life.submits.get(&ask.seq)?;
    if submit.is_held || submit.reasoning.is_some() {
        return None;
    }
    // Drafts of others that stand before it may be wrong.
    let begun = (ask.start.0 as usize + ask.query.len()).checked_sub(submit.prompt.len())?;
    // What the hashes are made to say is known with the first token.
    if begun == 0 {
        return None;
    }
    let num_said = ask.query.len().min(begun);
    let said = &ask.query[ask.query.len() - num_said..];
    if output.get(begun - num_said..begun)? != said {
        return None;
    }
    let after = output.get(begun..)?;
    let num_known = after.len().min(proposal.tokens.len());
    let (told, wanted) = (&proposal.tokens[..num_known], &after[..num_known]);
    let is_right = told == wanted;
    let what = || {
        format!(
            "{:?} was proposed {told:?}, and {wanted:?} was drawn",
            ask.seq
        )
    };
    (num_known > 0).then(|| if is_right { Ok(()) } else { Err(what()) })
}
