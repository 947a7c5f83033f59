//! What planted faults do wrongly between logits and a draw. It must never be in a build that serves anybody.

use lockstep_step::{Bitmask, Draw, MaskSet, SeqError, SeqPlan, TokenId, planted};

/// The draw as a faulty sampler makes it.
pub(crate) fn redraw<'a>(
    seq: &SeqPlan,
    query: &[TokenId],
    idx: usize,
    logits_of: &impl Fn(usize) -> Result<&'a [f32], SeqError>,
    masks: &MaskSet,
    draw: Draw,
) -> Draw {
    let is_sampled = seq.sampling.temperature > 0.0;
    // Planted: ohdearquant/lattice#225.
    if planted!(NoTopKIsTokenZero) && is_sampled && seq.sampling.top_k == 0 {
        let token = TokenId(0);
        return Draw { token, ..draw };
    }
    // Planted: ml-explore/mlx-swift-lm#459.
    if planted!(DraftHeldAgainstTheBest)
        && is_sampled
        && let Some(next) = seq.scored.get(idx + 1)
        && let Ok(logits) = logits_of(idx)
    {
        let draft = query[next.query_idx as usize];
        let mask = seq.scored[idx].mask.and_then(|row| masks.get(row));
        let may = |token: u32| mask.is_none_or(|mask| mask.allows(TokenId(token)));
        let ids = (0..logits.len() as u32).filter(|&id| may(id));
        let best = ids.max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize]));
        if best == Some(draft.0) {
            return Draw {
                token: draft,
                ..draw
            };
        }
    }
    draw
}

/// A mask in which what a bias raises is allowed.
pub(crate) fn opened(seq: &SeqPlan, mask: Option<&Bitmask>) -> Option<Bitmask> {
    // Planted: vllm-project/vllm#57986.
    let mut mask = mask.filter(|_| planted!(BiasOpensTheMask))?.clone();
    let raised = seq.sampling.bias.iter().filter(|(_, value)| *value > 0.0);
    raised.for_each(|&(token, _)| mask.allow(token));
    Some(mask)
}
