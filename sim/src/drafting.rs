//! What became of drafts: those of a model that is the model itself are right wherever nothing restricts a draw, and
//! where only models draft nobody has a draft that no model was asked for.

use crate::life::{Life, Step};
use crate::options::{Computes, Options};
use crate::reflection::reflection;
use crate::verdict::Stage;
use lockstep_capture::mirror::Fate;
use lockstep_step::{ModelDrafter, SeqId, SeqPlan, SeqProposalPlan, StepId, TokenId};
use std::collections::BTreeMap;

/// A draft that was not what it must be.
#[derive(Clone, Debug, PartialEq)]
pub struct Wrong {
    /// The step that it was in.
    pub step: StepId,
    /// Who is to blame for it.
    pub stage: Stage,
    /// What is wrong with it.
    pub what: String,
}

/// What was seen of drafts.
#[derive(Clone, Debug, Default)]
pub struct Drafted {
    /// Proposals of a model that is the model itself, all of whose drafts were right.
    pub num_right: u64,
    /// What is wrong.
    pub wrong: Vec<Wrong>,
}

/// Looks at all drafts of a life.
pub fn drafting(life: &Life, options: &Options) -> Drafted {
    let fates = &reflection(life, options).fates;
    let mut asked: BTreeMap<(StepId, SeqId), (&SeqProposalPlan, &[TokenId])> = BTreeMap::new();
    for (step, plan, proposals) in &life.proposals {
        for ask in &plan.seqs {
            let own = proposals.iter().find(|proposal| proposal.seq == ask.seq);
            let tokens = own.map_or(&[][..], |proposal| &proposal.tokens[..]);
            asked.insert((*step, ask.seq), (ask, tokens));
        }
    }
    let mut drafted = Drafted::default();
    for (&id, step) in &life.steps {
        for part in step.plan.seqs.iter().filter(|part| is_free(part)) {
            let Some(fate) = fates.get(&(id, part.seq)).filter(|fate| fate.counts) else {
                continue;
            };
            let of = asked.get(&(id, part.seq));
            let submit = life.submits.get(&part.seq);
            let own = submit.and_then(|submit| submit.speculation);
            let speculation = own.unwrap_or(options.engine.speculation);
            let guesses = speculation.suffix + speculation.ngram > 0;
            let num_prompt = submit.map_or(0, |submit| submit.prompt.len());
            match of {
                // What the hashes are made to say is known with the first draw, and no sooner.
                Some((ask, _)) if (ask.start.0 as usize) < num_prompt => {}
                Some((ask, tokens)) if is_itself(ask.drafter, options) => {
                    let right = check(step, part, fate, (ask, tokens));
                    drafted.num_right += u64::from(right.is_ok() && !tokens.is_empty());
                    drafted.wrong.extend(right.err());
                }
                None if part.num_drafts > 0 && !guesses => {
                    drafted.wrong.push(Wrong {
                        step: id,
                        stage: Stage::Overlap,
                        what: format!(
                            "{:?} in step {id} has drafts that nobody was asked for",
                            part.seq
                        ),
                    });
                }
                _ => {}
            }
        }
    }
    drafted
}

/// Whether nothing restricts what a part draws.
fn is_free(part: &SeqPlan) -> bool {
    !part.scored.is_empty() && part.scored.iter().all(|scored| scored.mask.is_none())
}

/// Whether a drafter is the model itself.
fn is_itself(drafter: ModelDrafter, options: &Options) -> bool {
    match options.computes() {
        Computes::Fingerprint => options.drafters.contains(&(drafter, 0)),
        // The embedded model has no smaller one beside it.
        Computes::Embedded => drafter == ModelDrafter::DraftModel,
    }
}

/// The drafts of a part are what was proposed, and right.
fn check(
    step: &Step,
    part: &SeqPlan,
    fate: &Fate,
    (ask, proposed): (&SeqProposalPlan, &[TokenId]),
) -> Result<(), Wrong> {
    let wrong = |stage, what: String| Wrong {
        step: step.plan.step,
        stage,
        what: format!("{:?} in step {}: {what}", part.seq, step.plan.step),
    };
    let num_committed = part.query.len() - part.num_drafts as usize;
    let drafts: Vec<TokenId> = fate.tokens[num_committed..]
        .iter()
        .copied()
        .flatten()
        .collect();
    // Before what was proposed stand drafts of others.
    let num_others = ask.query.len() - 1;
    let others = &ask.query[1..];
    let wanted: Vec<TokenId> = others.iter().chain(proposed).copied().collect();
    if !wanted.starts_with(&drafts) {
        let what = format!("has drafts {drafts:?}, and {wanted:?} were proposed");
        return Err(wrong(Stage::Overlap, what));
    }
    let output = step.output.as_ref().and_then(|output| output.as_ref().ok());
    let answer = output.and_then(|output| output.seqs.iter().find(|seq| seq.seq == part.seq));
    let draws = answer.and_then(|answer| answer.draws.as_ref().ok());
    // The first draw that differs; one that failed does not.
    let drawn = draws.and_then(|draws| draws.get(fate.num_accepted));
    let draft = drafts.get(fate.num_accepted);
    let (Some(drawn), Some(&draft)) = (drawn, draft) else {
        return Ok(());
    };
    if fate.num_accepted < num_others || drawn.token == draft {
        return Ok(());
    }
    let what = format!(
        "{:?}, which is the model itself, proposed {draft} at {} of {}, and {} was drawn",
        ask.drafter,
        fate.num_accepted - num_others,
        proposed.len(),
        drawn.token
    );
    Err(wrong(Stage::Speculation, what))
}
