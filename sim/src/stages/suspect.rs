//! A backend that computed something else than its twin is asked again: about the same steps one at a time,
//! with nothing left to look up, and then without the drafts that were wrong. Where it is right by then, what
//! was left out is to blame.
//!
//! It is the very backend of the run, with whatever is planted in it.

use super::Finding;
use super::twin::{differ, plainly};
use crate::life::Life;
use crate::model::ToyModel;
use crate::options::{Computes, Feature, Options};
use crate::reflection::reflection;
use crate::verdict::Stage;
use crate::world::{Run, computer};
use lockstep_capture::mirror::Fate;
use lockstep_step::planted::{self, Planted};
use lockstep_step::{
    BLOCK_LEN, Backend, BackendError, MaskRow, MaskSet, QueryToken, SeqId, SeqPlan, StepId,
    StepOutput, StepPlan, TokenCount, TokenId,
};
use std::collections::BTreeMap;

/// What is left of the drafts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drafts {
    /// All of them.
    Stay,
    /// Those that were right, as tokens that were committed.
    AreCommitted,
}

/// Who is to blame for what a backend, or its sampler, got wrong.
pub(super) fn stage(run: &Run, finding: &Finding, fault: Option<Planted>) -> Stage {
    let Some(book) = run.lives.get(finding.life) else {
        return finding.stage;
    };
    let life = book.open();
    let fates = &reflection(&life, &run.options).fates;
    let ways = [
        (Drafts::Stay, Stage::Overlap),
        (Drafts::AreCommitted, Stage::Speculation),
    ];
    // Where the same logits give another draw the sampler is to blame for what it does with drafts, too.
    let num_ways = match finding.stage {
        Stage::Sampler => 1,
        _ => ways.len(),
    };
    for (drafts, stage) in ways.into_iter().take(num_ways) {
        let steps = steps(&life, fates, drafts);
        if agree(&run.options, &steps, fault) {
            return stage;
        }
    }
    finding.stage
}

/// Whether the backend of a run agrees with its twin about these steps.
fn agree(options: &Options, steps: &[(StepPlan, MaskSet)], fault: Option<Planted>) -> bool {
    let plain = plainly(options);
    match options.computes() {
        Computes::Fingerprint => {
            let fixed = options.has(Feature::StaticBuffers);
            let model = ToyModel::new(options.format);
            let suspect = model.hashes(options.limits, vec![], fixed);
            let twin = model.hashes(plain.limits, vec![], false);
            agree_on(suspect, twin, steps, fault)
        }
        Computes::Embedded => agree_on(computer(options), computer(&plain), steps, fault),
    }
}

fn agree_on<B: Backend>(
    mut suspect: B,
    mut twin: B,
    steps: &[(StepPlan, MaskSet)],
    fault: Option<Planted>,
) -> bool {
    for (plan, masks) in steps {
        planted::set(fault);
        let told = run(&mut suspect, plan, masks);
        planted::set(None);
        let wanted = run(&mut twin, plan, masks);
        match (told, wanted) {
            (Ok(told), Ok(wanted)) => {
                let mut pairs = wanted.seqs.iter().zip(&told.seqs);
                if told.seqs.len() != wanted.seqs.len()
                    || pairs.any(|(wanted, told)| differ(wanted, told).is_some())
                {
                    return false;
                }
            }
            // What both refuse says nothing, nor does what comes after it.
            (Err(_), Err(_)) => return true,
            _ => return false,
        }
    }
    true
}

fn run<B: Backend>(
    backend: &mut B,
    plan: &StepPlan,
    masks: &MaskSet,
) -> Result<StepOutput, BackendError> {
    let forward = backend.forward(plan)?;
    backend.sample(forward, masks)
}

/// The steps of a life with nothing in them that did not count, and no reference.
fn steps(
    life: &Life,
    fates: &BTreeMap<(StepId, SeqId), Fate>,
    drafts: Drafts,
) -> Vec<(StepPlan, MaskSet)> {
    let mut steps = Vec::new();
    for (id, step) in &life.steps {
        let Some(masks) = &step.masks else {
            continue;
        };
        let mut own_masks = MaskSet::default();
        let parts = step.plan.seqs.iter().filter_map(|part| {
            let fate = fates.get(&(*id, part.seq)).filter(|fate| fate.counts)?;
            let mut own = one(part, fate, drafts)?;
            for scored in &mut own.scored {
                if let Some(row) = scored.mask {
                    let mask = masks.rows.get(row.0 as usize).cloned().flatten();
                    scored.mask = Some(MaskRow(own_masks.rows.len() as u32));
                    own_masks.rows.push(mask);
                }
            }
            Some(own)
        });
        let seqs: Vec<SeqPlan> = parts.collect();
        if !seqs.is_empty() {
            let plan = StepPlan {
                step: *id,
                seqs,
                num_mask_rows: own_masks.rows.len() as u32,
            };
            steps.push((plan, own_masks));
        }
    }
    steps
}

/// A part with all its tokens known, and maybe without its drafts.
fn one(part: &SeqPlan, fate: &Fate, drafts: Drafts) -> Option<SeqPlan> {
    let mut own = part.clone();
    let first = part
        .scored
        .first()
        .map_or(0, |scored| scored.query_idx as usize);
    for (idx, token) in fate.tokens.iter().enumerate() {
        let token = (*token)?;
        if matches!(part.query[idx], QueryToken::Drawn { .. }) && idx <= first {
            count(&mut own, token);
        }
        own.query[idx] = QueryToken::Known(token);
    }
    if drafts == Drafts::Stay || part.num_drafts == 0 {
        return Some(own);
    }
    let num_committed = part.query.len() - part.num_drafts as usize;
    let len = num_committed + fate.num_accepted;
    for idx in num_committed..len {
        count(&mut own, fate.tokens[idx]?);
    }
    own.query.truncate(len);
    own.num_drafts = 0;
    own.scored = vec![*part.scored.get(fate.num_accepted)?];
    let is_kept = |query_idx: usize| query_idx + 1 < num_committed || query_idx + 1 == len;
    own.rows
        .writes
        .retain(|write| is_kept(write.query_idx as usize));
    let num_blocks = (part.start.0 as usize + len).div_ceil(BLOCK_LEN as usize);
    own.block_table.truncate(num_blocks);
    Some(own)
}

/// Counts a token of the output, where a penalty asks for it.
fn count(part: &mut SeqPlan, token: TokenId) {
    if !part.sampling.has_penalties() {
        return;
    }
    match part
        .counts
        .binary_search_by_key(&token, |count| count.token)
    {
        Ok(at) => part.counts[at].output += 1,
        Err(at) => part.counts.insert(
            at,
            TokenCount {
                token,
                in_prompt: false,
                output: 1,
            },
        ),
    }
}
