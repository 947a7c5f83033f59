//! Finds where the end of a text occurred before in a history of tokens, so that what followed there can be
//! proposed. Bounded in time and memory, and without hashing: the same history gives the same answer.

use alloc::{collections::BTreeMap, vec::Vec};
use lockstep_step::TokenId;

/// Tokens that must agree before a place is looked at.
const KEY_LEN: usize = 2;

/// Places that are looked at per question, the latest first.
const CHAIN_MAX: usize = 24;

/// Agreeing tokens beyond which two places are equally good.
pub(crate) const LEN_MAX: usize = 32;

/// No earlier place with the same key.
const NONE: u32 = u32::MAX;

/// A history, indexed by pairs of tokens. The history itself is kept by whoever asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatchIndex {
    /// The index after the latest occurrence of a pair that something follows.
    latest: BTreeMap<[TokenId; KEY_LEN], u32>,
    /// By that index: the one after the occurrence before it.
    earlier: Vec<u32>,
}

/// A place in a history whose end agrees with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// Index of the token that followed.
    pub(crate) next: usize,
    /// Tokens before it that agree, at most [`LEN_MAX`].
    pub(crate) len: usize,
}

impl MatchIndex {
    /// Takes in what was added to the history since the last time. Its last token has nothing after it yet.
    pub(crate) fn extend(&mut self, history: &[TokenId]) {
        while self.earlier.len() < history.len() {
            let next = self.earlier.len();
            let key = next
                .checked_sub(KEY_LEN)
                .map(|from| key(&history[from..next]));
            let before = key.and_then(|key| self.latest.insert(key, next as u32));
            self.earlier.push(before.unwrap_or(NONE));
        }
    }

    /// The place that agrees with the end of a text for longest, the latest of those that agree equally.
    /// `history` is what [`extend`](Self::extend) was last given. None if fewer than `len_min` agree.
    pub(crate) fn find(
        &self,
        history: &[TokenId],
        text: &[TokenId],
        len_min: usize,
    ) -> Option<Match> {
        let mut best: Option<Match> = None;
        for place in self.places(history, text) {
            if place.len >= len_min && best.is_none_or(|best| place.len > best.len) {
                best = Some(place);
            }
            if best.is_some_and(|best| best.len == LEN_MAX) {
                break;
            }
        }
        best
    }

    /// The latest place whose end agrees with the end of a text in at least `len_min` tokens, more tokens
    /// being preferred only up to three: what comes next is best told by what was said last.
    pub(crate) fn latest(
        &self,
        history: &[TokenId],
        text: &[TokenId],
        len_min: usize,
    ) -> Option<Match> {
        let mut first: Option<Match> = None;
        for place in self.places(history, text) {
            if place.len >= len_min && place.len > KEY_LEN {
                return Some(place);
            }
            if place.len >= len_min && first.is_none() {
                first = Some(place);
            }
        }
        first
    }

    /// Places that agree in the last [`KEY_LEN`] tokens at least, the latest first, at most
    /// [`CHAIN_MAX`] of them.
    fn places<'a>(
        &'a self,
        history: &'a [TokenId],
        text: &'a [TokenId],
    ) -> impl Iterator<Item = Match> + 'a {
        let from = text.len().checked_sub(KEY_LEN);
        let latest = from.and_then(|from| self.latest.get(&key(&text[from..])).copied());
        let earlier = |at: &u32| Some(self.earlier[*at as usize]).filter(|&at| at != NONE);
        let chain = core::iter::successors(latest, earlier).take(CHAIN_MAX);
        chain.map(move |at| Match {
            next: at as usize,
            len: num_agreeing(&history[..at as usize], text),
        })
    }
}

fn key(pair: &[TokenId]) -> [TokenId; KEY_LEN] {
    [pair[0], pair[1]]
}

fn num_agreeing(history: &[TokenId], text: &[TokenId]) -> usize {
    let pairs = history.iter().rev().zip(text.iter().rev());
    pairs.take(LEN_MAX).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokens(text: &[u32]) -> Vec<TokenId> {
        text.iter().copied().map(TokenId).collect()
    }

    /// The same by looking at every place.
    fn plain(history: &[TokenId], text: &[TokenId], len_min: usize) -> Option<Match> {
        let mut best: Option<Match> = None;
        for next in (KEY_LEN..history.len()).rev() {
            let len = num_agreeing(&history[..next], text);
            let is_better = best.is_none_or(|best| len > best.len);
            if len >= len_min.max(KEY_LEN) && is_better {
                best = Some(Match { next, len });
            }
        }
        best
    }

    proptest! {
        #[test]
        fn the_longest_latest_match_is_found(
            history in prop::collection::vec(0u32..4, 0..40),
            cuts in prop::collection::vec(0usize..40, 0..4),
            ahead in prop::collection::vec(0u32..4, 0..3),
            len_min in 0usize..6,
        ) {
            let history = tokens(&history);
            let mut index = MatchIndex::default();
            for cut in cuts {
                let cut = cut.min(history.len());
                if cut >= index.earlier.len() {
                    index.extend(&history[..cut]);
                }
            }
            index.extend(&history);
            let text = [history.clone(), tokens(&ahead)].concat();
            let found = index.find(&history, &text, len_min);
            let expected = plain(&history, &text, len_min);
            // The bound on places that are looked at may only cost length.
            let few = history.len() < CHAIN_MAX;
            if few {
                prop_assert_eq!(found, expected);
            }
            prop_assert_eq!(found.is_some(), expected.is_some() || !few && found.is_some());
            if let Some(found) = found {
                prop_assert_eq!(num_agreeing(&history[..found.next], &text), found.len);
                prop_assert!(found.next < history.len());
            }
        }
    }
}
