//! What planted faults do wrongly with the rows of one step when tokens are drawn. It must never be in a build that
//! serves anybody.

use crate::Scored;
use lockstep_step::{Bitmask, MaskRow, MaskSet, SeqId, SeqOutput, StepPlan, planted};
use std::collections::BTreeMap;

/// What stays from step to step.
#[derive(Default)]
pub(crate) struct Misdraw {
    /// By the row of the batch that it stood in: whose mask it was, and the mask.
    masks: BTreeMap<usize, (SeqId, Bitmask)>,
}

/// Batches of fewer sequences cut at the k-th value, larger ones after k tokens.
const SMALL_BATCH: usize = 3;

impl Misdraw {
    /// A step and its masks, as draws are made from them.
    pub(crate) fn before(&mut self, mut forward: Scored, masks: &MaskSet) -> (Scored, MaskSet) {
        let mut masks = masks.clone();
        self.inherit(&mut forward, &mut masks);
        let is_greedy = |seq: &lockstep_step::SeqPlan| seq.sampling.temperature == 0.0;
        let (num_seqs, step) = (forward.plan.seqs.len(), forward.plan.step.0);
        let has_greedy = forward.plan.seqs.iter().any(is_greedy);
        for (seq, scored) in forward.plan.seqs.iter_mut().zip(&forward.seqs) {
            // Planted: vllm-project/vllm#51226.
            if planted!(OneSeedForAll) && has_greedy && !is_greedy(seq) {
                seq.sampling.seed = step;
            }
            // Planted: vllm-project/vllm#50979.
            let k = seq.sampling.top_k as usize;
            if planted!(TiesByBatchSize) && num_seqs < SMALL_BATCH && k > 0 {
                let widened = scored.logits.iter().map(|row| with_ties(row, k));
                seq.sampling.top_k = widened.max().unwrap_or(k) as u32;
            }
        }
        (forward, masks)
    }

    /// A free sequence gets the mask of whoever stood in its row before.
    fn inherit(&mut self, forward: &mut Scored, masks: &mut MaskSet) {
        // Planted: vllm-project/vllm#43894.
        if !planted!(RowKeepsItsMask) {
            return;
        }
        for (at, seq) in forward.plan.seqs.iter_mut().enumerate() {
            let Some(first) = seq.scored.first_mut() else {
                continue;
            };
            match (first.mask, self.masks.get(&at)) {
                (Some(row), _) => {
                    let mask = masks.get(row).cloned();
                    mask.map(|mask| self.masks.insert(at, (seq.seq, mask)));
                }
                (None, Some((owner, mask))) if *owner != seq.seq => {
                    first.mask = Some(MaskRow(masks.rows.len() as u32));
                    masks.rows.push(Some(mask.clone()));
                }
                (None, _) => {}
            }
        }
    }
}

/// How many tokens are at least as likely as the k-th.
fn with_ties(logits: &[f32], k: usize) -> usize {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let kth = sorted.get(k - 1).copied().unwrap_or(f32::NEG_INFINITY);
    sorted.iter().filter(|logit| **logit >= kth).count()
}

/// Log-probabilities of a window are those of the row after, where a part of the step before it draws nothing.
pub(crate) fn after(plan: &StepPlan, seqs: &mut [SeqOutput]) {
    let mut is_shifted = false;
    for (planned, answer) in plan.seqs.iter().zip(seqs) {
        is_shifted |= planned.scored.is_empty();
        // Planted: vllm-project/vllm#29216.
        if let Ok(draws) = &mut answer.draws
            && planted!(LogprobsShifted)
            && is_shifted
        {
            let of_next: Vec<_> = draws
                .iter()
                .skip(1)
                .map(|draw| draw.logprobs.clone())
                .collect();
            let moved = draws.iter_mut().zip(of_next);
            moved.for_each(|(draw, logprobs)| draw.logprobs = logprobs);
        }
    }
}
