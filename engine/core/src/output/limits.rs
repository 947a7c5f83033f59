//! The limits of one output that are counted in tokens: its length, and the budget of its reasoning.

use crate::ReasoningBudget;
use alloc::vec::Vec;
use lockstep_step::{TokenId, planted};

/// Counts reasoning tokens and says when reasoning has to be closed by force.
///
/// A token is a reasoning token if reasoning was open before it, so the closing tag is one. Forcing begins
/// when the budget is used up and reasoning is still open. The closing tokens are forced one after
/// another; where a constraint forbids one of them the constraint wins, and the closing starts over. After
/// a whole closing nothing is forced again, so a closing that doesn't close can't hang.
#[derive(Clone, Debug)]
pub(crate) struct ReasoningLimit {
    budget: Option<ReasoningBudget>,
    num_tokens: u32,
    num_closed: usize,
}

impl ReasoningLimit {
    pub(crate) fn new(budget: Option<ReasoningBudget>) -> ReasoningLimit {
        ReasoningLimit {
            budget,
            num_tokens: 0,
            num_closed: 0,
        }
    }

    /// Reasoning tokens so far.
    pub(crate) fn num_tokens(&self) -> u32 {
        self.num_tokens
    }

    /// The token that has to come next, if any.
    pub(crate) fn forced(&self, in_reasoning: bool) -> Option<TokenId> {
        let budget = self.budget.as_ref()?;
        let used_up = in_reasoning && self.num_tokens >= budget.max_tokens;
        let next = budget.close.get(self.num_closed).copied();
        next.filter(|_| used_up)
    }

    /// Whether a token may have to come next, once `num_in_flight` more that nobody knows yet are there.
    pub(crate) fn may_force(&self, in_reasoning: bool, num_in_flight: usize) -> bool {
        match &self.budget {
            Some(budget) if num_in_flight > 0 => {
                let num_tokens = self.num_tokens as usize + num_in_flight;
                self.num_closed < budget.close.len() && num_tokens >= budget.max_tokens as usize
            }
            _ => self.forced(in_reasoning).is_some(),
        }
    }

    /// How many drafts may follow without one of them standing where a token may be forced: a mask is
    /// chosen when a step is planned, and by then it must be known whether it forces. Before them come
    /// `num_in_flight` tokens that nobody knows yet.
    pub(crate) fn drafts_max(&self, in_reasoning: bool, num_in_flight: usize) -> usize {
        match &self.budget {
            Some(budget) if num_in_flight > 0 && self.num_closed < budget.close.len() => {
                let num_before = self.num_tokens as usize + num_in_flight + 1;
                (budget.max_tokens as usize).saturating_sub(num_before)
            }
            Some(budget) if in_reasoning && self.num_closed < budget.close.len() => {
                // Planted: vllm-project/vllm#41768.
                let next = u32::from(!planted!(BudgetMissesARow));
                budget.max_tokens.saturating_sub(self.num_tokens + next) as usize
            }
            // Outside reasoning nothing is forced, but reasoning may yet open within the drafts.
            Some(budget) if self.num_closed < budget.close.len() => budget
                .max_tokens
                .saturating_sub(self.num_tokens)
                .min(u32::from(u16::MAX))
                as usize,
            _ => usize::MAX,
        }
    }

    /// Counts tokens that were not taken.
    #[cfg(planted)]
    pub(super) fn count(&mut self, num_tokens: u32) {
        self.num_tokens += num_tokens;
    }

    /// Takes a token; `in_reasoning` says whether reasoning was open before it.
    pub(crate) fn push(&mut self, token: TokenId, in_reasoning: bool) {
        if let Some(forced) = self.forced(in_reasoning) {
            self.num_closed = if token == forced {
                self.num_closed + 1
            } else {
                0
            };
        }
        if in_reasoning {
            self.num_tokens += 1;
        }
    }
}

/// The tokens that end an output and the length at which it ends anyway.
#[derive(Clone, Debug)]
pub(crate) struct LengthLimit {
    /// End tokens.
    pub(crate) end_tokens: Vec<TokenId>,
    /// The most tokens of output.
    pub(crate) num_tokens_max: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn limit(max_tokens: u32) -> ReasoningLimit {
        ReasoningLimit::new(Some(ReasoningBudget {
            max_tokens,
            close: vec![TokenId(7), TokenId(8)],
        }))
    }

    #[test]
    fn the_closing_is_forced_once_when_the_budget_is_used_up() {
        let mut limit = limit(2);
        assert_eq!(limit.forced(true), None);
        limit.push(TokenId(1), true);
        assert_eq!(limit.drafts_max(true, 0), 0);
        limit.push(TokenId(1), true);
        assert_eq!(limit.forced(true), Some(TokenId(7)));
        assert_eq!(limit.forced(false), None, "nothing is open");
        limit.push(TokenId(7), true);
        assert_eq!(limit.forced(true), Some(TokenId(8)));
        limit.push(TokenId(1), true);
        assert_eq!(
            limit.forced(true),
            Some(TokenId(7)),
            "the closing starts over"
        );
        limit.push(TokenId(7), true);
        limit.push(TokenId(8), true);
        assert_eq!(
            limit.forced(true),
            None,
            "a closing that doesn't close is given up"
        );
        assert_eq!(limit.num_tokens(), 6);
    }

    #[test]
    fn drafts_end_before_the_first_place_that_may_be_forced() {
        for (max_tokens, num_drawn) in (0..4).flat_map(|max| (0..6).map(move |num| (max, num))) {
            let mut limit = limit(max_tokens);
            (0..num_drawn).for_each(|_| limit.push(TokenId(1), true));
            for num_in_flight in 0..4 {
                // With n drafts the last scored position follows n more tokens.
                let num_drafts = limit.drafts_max(true, num_in_flight);
                let before = limit.num_tokens() as usize + num_in_flight + num_drafts;
                assert!(num_drafts == 0 || before < max_tokens as usize);
                let mut later = limit.clone();
                (0..num_in_flight).for_each(|_| later.push(TokenId(1), true));
                let is_forced = later.forced(true).is_some();
                assert!(!is_forced || limit.may_force(true, num_in_flight));
                assert!(limit.may_force(true, num_in_flight) || before < max_tokens as usize);
            }
        }
    }
}
