//! What was said lately, by any request: agents repeat themselves, and each other. Bounded; the oldest half
//! goes first. It only ever makes drafts, so it can change speed and never output.

use crate::draft::matches::{Match, MatchIndex};
use alloc::vec::Vec;
use lockstep_step::TokenId;

/// Tokens that are kept.
const TOKENS_MAX: usize = 1 << 15;

/// Tokens of one output that are kept: its last ones.
const OUTPUT_MAX: usize = 1 << 11;

/// Between two outputs; outside any vocabulary, so that nothing agrees with it and no draft reaches past it.
const BORDER: TokenId = TokenId(u32::MAX);

/// The last outputs, one after another.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentOutputs {
    tokens: Vec<TokenId>,
    index: MatchIndex,
}

impl RecentOutputs {
    /// Takes an output in that has ended.
    pub(crate) fn push(&mut self, output: &[TokenId]) {
        let output = &output[output.len().saturating_sub(OUTPUT_MAX)..];
        if output.is_empty() {
            return;
        }
        if self.tokens.len() + output.len() + 1 > TOKENS_MAX {
            let kept = self.tokens.split_off(self.tokens.len() / 2);
            // What is cut off at its start says nothing wrong: only how it began is forgotten.
            self.tokens = kept;
            self.index = MatchIndex::default();
        }
        self.tokens.extend_from_slice(output);
        self.tokens.push(BORDER);
        self.index.extend(&self.tokens);
    }

    /// Where the end of a text was said before.
    pub(crate) fn find(&self, text: &[TokenId], len_min: usize) -> Option<Match> {
        self.index.find(&self.tokens, text, len_min)
    }

    /// What followed there, as far as that output went.
    pub(crate) fn after(&self, found: Match) -> &[TokenId] {
        let rest = &self.tokens[found.next..];
        let end = rest.iter().position(|&token| token == BORDER);
        &rest[..end.unwrap_or(rest.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(from: u32, len: u32) -> Vec<TokenId> {
        (from..from + len).map(TokenId).collect()
    }

    #[test]
    fn what_followed_is_found_within_one_output() {
        let mut recent = RecentOutputs::default();
        recent.push(&output(10, 5));
        recent.push(&output(20, 5));
        recent.push(&[]);
        let text = [TokenId(1), TokenId(11), TokenId(12)];
        let found = recent.find(&text, 2).expect("it was said");
        assert_eq!(found.len, 2);
        assert_eq!(
            recent.after(found),
            output(13, 2),
            "not into the next output"
        );
        assert_eq!(recent.find(&text, 3), None);
        let end = [TokenId(13), TokenId(14)];
        let nothing = recent.find(&end, 2).map(|found| recent.after(found).len());
        assert_eq!(nothing, Some(0));
    }

    #[test]
    fn it_stays_within_its_bound_and_forgets_the_oldest() {
        let mut recent = RecentOutputs::default();
        for round in 0..100 {
            recent.push(&output(round * 10_000, 3_000));
            assert!(recent.tokens.len() <= TOKENS_MAX);
        }
        let at = |round: u32| {
            let late = round * 10_000 + 2_900;
            recent.find(&[TokenId(late), TokenId(late + 1)], 2)
        };
        assert!(at(99).is_some() && at(98).is_some());
        assert_eq!(at(0), None);
    }
}
