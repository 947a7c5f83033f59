//! What the last steps drew: what [`QueryToken::Drawn`] of a later plan stands for.

use lockstep_step::{PlanError, PlanRule, QueryToken, SeqId, SeqOutput, SeqPlan, StepId, TokenId};
use std::collections::VecDeque;

/// Steps whose draws plans may refer to.
const STEPS_KEPT: usize = 4;

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
        let (_, seqs) = self.steps.iter().find(|(of, _)| *of == step)?;
        let at = seqs.binary_search_by_key(&seq, |(of, _)| *of).ok()?;
        seqs[at].1.get(scored_idx as usize).copied()
    }
}
