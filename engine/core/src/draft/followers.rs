//! What followed what: a suffix tree of a text, cut at a small depth, with counts. It tells the likeliest next token
//! after the last few, and how likely that is, so that a guess can end where it stops being worth its price.
//!
//! Estimates of all context lengths are blended, the longest first: what followed a context `total` times, in
//! `distinct` ways, is believed to a part of `total / (total + PRIOR * distinct)`, and the rest is asked of the
//! context that is one token shorter. (This is prediction by partial matching, with Witten and Bell's escape.)

use alloc::{vec, vec::Vec};
use lockstep_step::TokenId;

/// Tokens of the longest context.
pub(crate) const CONTEXT_MAX: usize = 4;

/// How much a new way to go on is held against a context.
const PRIOR: f32 = 2.0;

/// What is left to shorter contexts and not worth asking them.
const REST_MIN: f32 = 0.05;

/// Candidates for the next token: at most the best of each context in each tree.
const CANDIDATES_MAX: usize = 2 * CONTEXT_MAX;

const NONE: u32 = u32::MAX;

/// The tree. A node is a string of tokens that occurred.
#[derive(Clone, Debug)]
pub(crate) struct FollowerTree {
    nodes: Vec<Node>,
    /// By parent and token: a node, or none; a power of two of slots, at most half of them taken.
    slots: Vec<u32>,
    /// After the whole text.
    end: Contexts,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Of the string that is one token shorter.
    parent: u32,
    token: TokenId,
    count: u32,
    /// Times that anything followed, and in how many ways.
    num_followed: u32,
    num_distinct: u32,
    /// The most frequent follower, as a node.
    best: u32,
}

/// The nodes of the last 0 to [`CONTEXT_MAX`] tokens of a text, by how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contexts([u32; CONTEXT_MAX + 1]);

const ROOT: Node = Node {
    parent: NONE,
    token: TokenId(NONE),
    count: 0,
    num_followed: 0,
    num_distinct: 0,
    best: NONE,
};

impl Default for FollowerTree {
    fn default() -> FollowerTree {
        FollowerTree {
            nodes: vec![ROOT],
            slots: vec![NONE; 64],
            end: Contexts::EMPTY,
        }
    }
}

impl Contexts {
    const EMPTY: Contexts = {
        let mut nodes = [NONE; CONTEXT_MAX + 1];
        nodes[0] = 0;
        Contexts(nodes)
    };
}

impl FollowerTree {
    /// Takes the next token of the text.
    pub(crate) fn push(&mut self, token: TokenId) {
        let Contexts(before) = self.end;
        let mut after = Contexts::EMPTY;
        for (len, &node) in before.iter().enumerate() {
            if node == NONE {
                break;
            }
            let child = self.count(node, token);
            if let Some(slot) = after.0.get_mut(len + 1) {
                *slot = child;
            }
        }
        self.end = after;
    }

    /// Begins another text: nothing before it is context.
    pub(crate) fn begin(&mut self) {
        self.end = Contexts::EMPTY;
    }

    /// Where another text ends, of which only the last tokens matter.
    pub(crate) fn find(&self, text: &[TokenId]) -> Contexts {
        let tail = &text[text.len().saturating_sub(CONTEXT_MAX)..];
        tail.iter()
            .fold(Contexts::EMPTY, |at, &token| self.step(at, token))
    }

    /// Where a text ends that goes on with this token.
    pub(crate) fn step(&self, at: Contexts, token: TokenId) -> Contexts {
        let mut after = Contexts::EMPTY;
        for (len, &node) in at.0[..CONTEXT_MAX].iter().enumerate() {
            if node != NONE {
                after.0[len + 1] = self.child(node, token).unwrap_or(NONE);
            }
        }
        after
    }

    /// Nodes that there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn node(&self, node: u32) -> Option<&Node> {
        self.nodes.get(node as usize)
    }

    fn num_after(&self, node: u32, token: TokenId) -> u32 {
        let child = self.node(node).and_then(|_| self.child(node, token));
        child.map_or(0, |child| self.nodes[child as usize].count)
    }

    fn child(&self, parent: u32, token: TokenId) -> Option<u32> {
        let slot = self.slot(parent, token);
        Some(self.slots[slot]).filter(|&node| node != NONE)
    }

    /// The slot of a node, taken or not.
    fn slot(&self, parent: u32, token: TokenId) -> usize {
        let mask = self.slots.len() - 1;
        let both = u64::from(parent) << 32 | u64::from(token.0);
        let mixed = (both ^ both >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut slot = (mixed >> 32) as usize & mask;
        while let Some(node) = self.node(self.slots[slot]) {
            if node.parent == parent && node.token == token {
                break;
            }
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// Counts a token after a string.
    fn count(&mut self, parent: u32, token: TokenId) -> u32 {
        let slot = self.slot(parent, token);
        let child = match self.slots[slot] {
            NONE => {
                let child = self.nodes.len() as u32;
                self.nodes.push(Node {
                    parent,
                    token,
                    ..ROOT
                });
                self.slots[slot] = child;
                self.nodes[parent as usize].num_distinct += 1;
                if 2 * self.nodes.len() > self.slots.len() {
                    self.grow();
                }
                child
            }
            child => child,
        };
        self.nodes[child as usize].count += 1;
        let count = self.nodes[child as usize].count;
        let best = self.nodes[parent as usize].best;
        let best_count = self.node(best).map_or(0, |best| best.count);
        let parent = &mut self.nodes[parent as usize];
        parent.num_followed += 1;
        // Of those that are equally frequent, the latest.
        if count >= best_count {
            parent.best = child;
        }
        child
    }

    fn grow(&mut self) {
        self.slots = vec![NONE; 2 * self.slots.len()];
        for idx in 1..self.nodes.len() {
            let Node { parent, token, .. } = self.nodes[idx];
            let slot = self.slot(parent, token);
            self.slots[slot] = idx as u32;
        }
    }
}

/// The likeliest token at the end of a text that these trees know, at most two, and how likely it is. None if
/// none knows anything of it.
pub(crate) fn likeliest(trees: &[(&FollowerTree, Contexts)]) -> Option<(TokenId, f32)> {
    let mut candidates: [(TokenId, f32); CANDIDATES_MAX] = [(TokenId(NONE), 0.0); CANDIDATES_MAX];
    let mut num_candidates = 0;
    let mut rest = 1.0f32;
    for len in (1..=CONTEXT_MAX).rev() {
        let nodes = trees.iter().map(|(tree, Contexts(at))| (*tree, at[len]));
        let (mut total, mut distinct) = (0, 0);
        for (tree, node) in nodes.clone() {
            let Some(node) = tree.node(node) else {
                continue;
            };
            total += node.num_followed;
            distinct += node.num_distinct;
            let Some(best) = tree.node(node.best) else {
                continue;
            };
            let known = candidates[..num_candidates].iter();
            if !known.into_iter().any(|known| known.0 == best.token) {
                candidates[num_candidates].0 = best.token;
                num_candidates += 1;
            }
        }
        if total == 0 {
            continue;
        }
        let belief = total as f32 / (total as f32 + PRIOR * distinct as f32);
        for (token, share) in &mut candidates[..num_candidates] {
            let counts = nodes
                .clone()
                .map(|(tree, node)| tree.num_after(node, *token));
            let count: u32 = counts.sum();
            *share += rest * belief * count as f32 / total as f32;
        }
        rest *= 1.0 - belief;
        if rest < REST_MIN {
            break;
        }
    }
    let found = candidates[..num_candidates].iter().copied();
    found.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn tree(texts: &[&[u32]]) -> FollowerTree {
        let mut tree = FollowerTree::default();
        for text in texts {
            tree.begin();
            text.iter().for_each(|&token| tree.push(TokenId(token)));
        }
        tree
    }

    fn after(own: &FollowerTree, text: &[u32]) -> Option<(u32, f32)> {
        let text: Vec<TokenId> = text.iter().copied().map(TokenId).collect();
        let found = likeliest(&[(own, own.find(&text))]);
        found.map(|(token, share)| (token.0, share))
    }

    #[test]
    fn what_followed_often_is_believed_and_what_followed_once_is_not() {
        let often = tree(&[&[1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 3]]);
        let (token, share) = after(&often, &[9, 1]).expect("1 was followed");
        assert_eq!(token, 2);
        assert!(share > 0.4 && share < 0.8, "{share}");
        let (_, once) = after(&tree(&[&[1, 2]]), &[1]).expect("1 was followed");
        assert!(once < 0.4, "{once}");
        // Four contexts that agree are better than one.
        let copy = tree(&[&[5, 6, 7, 8, 9]]);
        let (token, share) = after(&copy, &[5, 6, 7, 8]).expect("it was said");
        assert_eq!(token, 9);
        assert!(share > 0.7, "{share}");
        assert_eq!(after(&copy, &[9]), None, "nothing follows the end");
        assert_eq!(after(&copy, &[4]), None, "4 was never said");
        assert_eq!(after(&copy, &[]), None);
    }

    #[test]
    fn texts_are_apart() {
        let apart = tree(&[&[1, 2], &[3, 4]]);
        assert_eq!(after(&apart, &[2]), None);
        assert_eq!(after(&apart, &[1, 2]), None);
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_text(
            texts in prop::collection::vec(prop::collection::vec(0u32..5, 0..60), 1..4),
        ) {
            let texts: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
            let tree = tree(&texts);
            let mut counts: BTreeMap<&[u32], u32> = BTreeMap::new();
            for text in &texts {
                for from in 0..text.len() {
                    for len in 1..=(CONTEXT_MAX + 1).min(text.len() - from) {
                        *counts.entry(&text[from..from + len]).or_default() += 1;
                    }
                }
            }
            prop_assert_eq!(tree.len(), counts.len() + 1);
            for (string, &count) in &counts {
                let (token, context) = string.split_last().expect("not empty");
                let context: Vec<TokenId> = context.iter().copied().map(TokenId).collect();
                let at = tree.find(&context).0[context.len()];
                prop_assert_eq!(tree.num_after(at, TokenId(*token)), count);
                let best = tree.nodes[tree.nodes[at as usize].best as usize];
                prop_assert!(best.count >= count && best.parent == at);
            }
        }
    }
}
