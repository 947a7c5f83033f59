//! What was said lately, by any request: agents repeat themselves, and each other. Bounded; the oldest half
//! goes first. It only ever makes drafts, so it can change speed and never output.

use crate::draft::followers::FollowerTree;
use alloc::vec::Vec;
use lockstep_step::TokenId;

/// Tokens that are kept.
const TOKENS_MAX: usize = 1 << 15;

/// Tokens of one output that are kept: its last ones.
const OUTPUT_MAX: usize = 1 << 11;

/// Between two outputs; outside any vocabulary.
const BORDER: TokenId = TokenId(u32::MAX);

/// The last outputs.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentOutputs {
    /// One after another, each with a border after it.
    tokens: Vec<TokenId>,
    tree: FollowerTree,
}

impl RecentOutputs {
    /// Takes an output in that has ended.
    pub(crate) fn push(&mut self, output: &[TokenId]) {
        let output = &output[output.len().saturating_sub(OUTPUT_MAX)..];
        if output.is_empty() {
            return;
        }
        if self.tokens.len() + output.len() + 1 > TOKENS_MAX {
            // What is cut off at its start says nothing wrong: only how it began is forgotten.
            self.tokens.drain(..self.tokens.len() / 2);
            self.tree = FollowerTree::default();
            for text in self.tokens.split(|&token| token == BORDER) {
                read(&mut self.tree, text);
            }
        }
        self.tokens.extend_from_slice(output);
        self.tokens.push(BORDER);
        read(&mut self.tree, output);
    }

    /// What followed what in them.
    pub(crate) fn tree(&self) -> &FollowerTree {
        &self.tree
    }
}

fn read(tree: &mut FollowerTree, text: &[TokenId]) {
    tree.begin();
    text.iter().for_each(|&token| tree.push(token));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::followers::likeliest;

    fn output(from: u32, len: u32) -> Vec<TokenId> {
        (from..from + len).map(TokenId).collect()
    }

    fn next(recent: &RecentOutputs, text: &[u32]) -> Option<u32> {
        let text: Vec<TokenId> = text.iter().copied().map(TokenId).collect();
        let tree = recent.tree();
        let found = likeliest(&[(tree, tree.find(&text))]);
        found.map(|(token, _)| token.0)
    }

    #[test]
    fn what_followed_is_found_within_one_output() {
        let mut recent = RecentOutputs::default();
        recent.push(&output(10, 5));
        recent.push(&output(20, 5));
        recent.push(&[]);
        assert_eq!(next(&recent, &[1, 11, 12]), Some(13));
        assert_eq!(next(&recent, &[13, 14]), None, "not into the next output");
    }

    #[test]
    fn it_stays_within_its_bound_and_forgets_the_oldest() {
        let mut recent = RecentOutputs::default();
        for round in 0..100 {
            recent.push(&output(round * 10_000, 3_000));
            assert!(recent.tokens.len() <= TOKENS_MAX);
            assert!(recent.tree.len() <= 5 * TOKENS_MAX);
        }
        let at = |round: u32| next(&recent, &[round * 10_000 + 2_900]);
        assert!(at(99).is_some() && at(98).is_some());
        assert_eq!(at(0), None);
    }
}
