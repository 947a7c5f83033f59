//! What the last steps drew: what [`QueryToken::Drawn`] of a later plan stands for.

#[cfg(planted)]
use lockstep_step::planted;
use lockstep_step::{PlanError, PlanRule, QueryToken, SeqId, SeqOutput, SeqPlan, StepId, TokenId};
use std::collections::VecDeque;

/// Steps whose draws plans may refer to.
const STEPS_KEPT: usize = 4;

/// Places for draws that plans may refer to.
#[cfg(planted)]
const RING_LEN: usize = 8;

/// Draws of the last steps, by sequence.
#[derive(Clone, Debug, Default)]
pub struct DrawnTokens {
    // Oldest first; sequences in ascending order.
    steps: VecDeque<(StepId, StepDraws)>,
}

/// The draws of one step, by sequence.
type StepDraws = Vec<(SeqId, Vec<TokenId>)>;

impl DrawnTokens {
    /// Keeps what a step drew. A step that is computed again replaces what it drew before.
    pub fn keep(&mut self, step: StepId, seqs: &[SeqOutput]) {
        self.steps.retain(|(of, _)| *of != step);
        if self.steps.len() == STEPS_KEPT {
            self.steps.pop_front();
        }
        let draws = seqs.iter().filter_map(|seq| {
            let draws = seq.draws.as_ref().ok()?;
            Some((seq.seq, draws.iter().map(|draw| draw.token).collect()))
        });
        self.steps.push_back((step, draws.collect()));
    }

    /// The tokens of a sequence's query, and what is wrong with it. A draw that was never made stands for
    /// token 0, and its sequence can't be answered: either it has ended, or its plan is void, since it was
    /// written as if more drafts were right than were.
    pub fn resolve(&self, seq: &SeqPlan) -> (Vec<TokenId>, Option<PlanError>) {
        let mut refused = None;
        let tokens = seq.query.iter().map(|token| match *token {
            QueryToken::Known(token) => token,
            QueryToken::Drawn { step, scored_idx } => {
                self.find(seq.seq, step, scored_idx).unwrap_or_else(|| {
                    refused.get_or_insert(PlanError {
                        rule: PlanRule::TokenRange,
                        seq: seq.seq,
                        detail: format!("draw {scored_idx} of step {step} is not known"),
                    });
                    TokenId(0)
                })
            }
        });
        (tokens.collect(), refused)
    }

    fn find(&self, seq: SeqId, step: StepId, scored_idx: u32) -> Option<TokenId> {
        #[cfg(planted)]
        if let Some(other) = self.mistaken(seq, step, scored_idx) {
            return Some(other);
        }
        let (_, seqs) = self.steps.iter().find(|(of, _)| *of == step)?;
        let at = seqs.binary_search_by_key(&seq, |(of, _)| *of).ok()?;
        seqs[at].1.get(scored_idx as usize).copied()
    }

    /// What stands where a draw is looked for and was not put.
    #[cfg(planted)]
    fn mistaken(&self, seq: SeqId, step: StepId, scored_idx: u32) -> Option<TokenId> {
        // Planted: vllm-project/vllm#36013: what is large comes too late, and the last copy is read.
        let of = self.steps.iter().position(|(of, _)| *of == step)?;
        let num_draws: usize = self.steps[of].1.iter().map(|(_, draws)| draws.len()).sum();
        if planted!(AcceptedCountReadBeforeCopy) && num_draws > 4 {
            let before = &self.steps.get(of.checked_sub(1)?)?.1;
            let at = before.binary_search_by_key(&seq, |(of, _)| *of).ok()?;
            return before[at].1.get(scored_idx as usize).copied();
        }
        // Planted: sgl-project/sglang#13713: parts that draw nothing take a place in the ring, too.
        if planted!(FutureTokenRingOverwritten) {
            let parts = self.steps.iter().flat_map(|(step, seqs)| {
                seqs.iter().flat_map(|(seq, draws)| {
                    let places = 0..draws.len().max(1) as u32;
                    places.map(|idx| ((*step, *seq, idx), draws.get(idx as usize).copied()))
                })
            });
            let places: Vec<_> = parts.collect();
            let own = places
                .iter()
                .position(|place| place.0 == (step, seq, scored_idx))?;
            let later = (own + RING_LEN..places.len())
                .step_by(RING_LEN)
                .next_back()?;
            return Some(places[later].1.unwrap_or_default());
        }
        None
    }
}
