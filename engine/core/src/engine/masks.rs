//! Fills the mask rows of a plan. A matcher is walked over the drafts and rolled back; it must never be
//! left anywhere but where it was.

use super::Engine;
use crate::RequestError;
use crate::sequence::Sequence;
use alloc::{format, string::String, string::ToString, vec};
use lockstep_step::{Bitmask, MaskSet, QueryToken, SeqPlan, StepPlan, TokenId};

impl Engine {
    pub(super) fn fill_masks_of(&mut self, plan: &StepPlan) -> MaskSet {
        let mut masks = MaskSet {
            rows: vec![None; plan.num_mask_rows as usize],
        };
        for planned in &plan.seqs {
            if planned.scored.iter().all(|scored| scored.mask.is_none()) {
                continue;
            }
            // An aborted sequence leaves its rows empty: its draws go nowhere.
            let Some(seq) = self.scheduler.seqs.get_mut(&planned.seq) else {
                continue;
            };
            if let Err(message) = fill(seq, planned, self.limits.vocab_size, &mut masks)
                && let Some(part) = self.in_flight.get_mut(plan.step, planned.seq)
            {
                part.failed = Some(RequestError::Matcher(message));
            }
        }
        masks
    }
}

/// Fills the rows of one sequence, up to the first draft that is not allowed: it can't be drawn, so what
/// would follow it doesn't matter.
fn fill(
    seq: &mut Sequence,
    planned: &SeqPlan,
    vocab_size: u32,
    masks: &mut MaskSet,
) -> Result<(), String> {
    let forced = seq.output.forced();
    let Some(matcher) = seq.matcher.as_mut() else {
        // A forced token is planned without drafts, so that there is one row.
        if let Some(row) = planned.scored[0].mask {
            masks.rows[row.0 as usize] = Some(only(forced, vocab_size));
        }
        return Ok(());
    };
    let depth = matcher.depth();
    let mut num_taken = 0;
    let mut filled = Ok(());
    for (idx, scored) in planned.scored.iter().enumerate() {
        let mut mask = Bitmask::none(vocab_size);
        if let Err(error) = matcher.fill(&mut mask) {
            filled = Err(error.to_string());
            break;
        }
        let next = planned.scored.get(idx + 1);
        let draft = next.and_then(|next| match planned.query[next.query_idx as usize] {
            QueryToken::Known(token) => Some(token),
            QueryToken::Drawn { .. } => None,
        });
        let goes_on = draft.is_some_and(|draft| mask.allows(draft));
        // The constraint wins where both speak: it may be in the middle of something.
        if let Some(token) = forced.filter(|&token| idx == 0 && mask.allows(token)) {
            mask = only(Some(token), vocab_size);
        }
        if let Some(row) = scored.mask {
            masks.rows[row.0 as usize] = Some(mask);
        }
        match draft.filter(|_| goes_on) {
            Some(draft) if matcher.consume(draft).is_ok() => num_taken += 1,
            _ => break,
        }
    }
    matcher.rollback(num_taken);
    if matcher.depth() != depth {
        return Err(format!(
            "the matcher was at {depth} tokens and is at {} after {num_taken} were rolled back",
            matcher.depth()
        ));
    }
    filled
}

fn only(token: Option<TokenId>, vocab_size: u32) -> Bitmask {
    let Some(token) = token else {
        return Bitmask::all(vocab_size);
    };
    let mut mask = Bitmask::none(vocab_size);
    mask.allow(token);
    mask
}
