//! Finds where the end of a text occurred before in a history of tokens, so that what followed there can be
//! proposed. Bounded in time and memory. Pairs of tokens share slots, but every place is compared with the
//! tokens themselves: the same history gives the same answer, and no other pair is ever taken for the one
//! that was looked for.

use alloc::{vec, vec::Vec};
use lockstep_step::TokenId;

/// Tokens that must agree before a place is looked at.
const KEY_LEN: usize = 2;

/// Places that are compared per question, the latest first.
const CHAIN_MAX: usize = 24;

/// Places of all pairs of the slot that are passed per question.
const SLOT_CHAIN_MAX: usize = 4 * CHAIN_MAX;

/// Slots at least; always a power of two.
const SLOTS_MIN: usize = 64;

/// Agreeing tokens beyond which two places are equally good.
pub(crate) const LEN_MAX: usize = 32;

/// No earlier place with the same key.
const NONE: u32 = u32::MAX;

/// A history, indexed by pairs of tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatchIndex {
    /// A longest match of the first `num_followed` tokens: as long as it goes on, none is longer, and nothing
    /// has to be looked for.
    current: Option<Match>,
    num_followed: usize,
    /// By slot: the index after the latest occurrence of one of its pairs. At least as many as tokens.
    latest: Vec<u32>,
    /// By that index; one more than tokens.
    places: Vec<Place>,
}

/// The token before an index, and the index after the occurrence before it: side by side, since a question
/// reads both.
#[derive(Clone, Copy, Debug)]
struct Place {
    token: TokenId,
    earlier: u32,
}

/// A place in a history whose end agrees with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// Index of the token that followed.
    pub(crate) next: usize,
    /// Tokens before it that agree, at most [`LEN_MAX`].
    pub(crate) len: usize,
}

impl Match {
    /// The same match once a token was added to both.
    fn after(self, token: TokenId, history: &[TokenId]) -> Option<Match> {
        let goes_on = history.get(self.next) == Some(&token);
        goes_on.then(|| Match {
            next: self.next + 1,
            len: (self.len + 1).min(LEN_MAX),
        })
    }
}

impl MatchIndex {
    /// Takes in what was added to the history since the last time.
    pub(crate) fn extend(&mut self, history: &[TokenId]) {
        if history.len() > self.latest.len() {
            // Linked anew: which pairs share a slot depends on how many there are.
            let num_slots = history.len().next_power_of_two().max(SLOTS_MIN);
            self.latest = vec![NONE; num_slots];
            self.places.clear();
        }
        for next in self.places.len()..=history.len() {
            let before = next.checked_sub(KEY_LEN).map_or(NONE, |from| {
                let slot = slot(&history[from..next], self.latest.len());
                core::mem::replace(&mut self.latest[slot], next as u32)
            });
            let token = next.checked_sub(1).map(|last| history[last]);
            self.places.push(Place {
                token: token.unwrap_or_default(),
                earlier: before,
            });
        }
    }

    /// A place that agrees for longest with the end of a history that is followed by `ahead`; none if fewer
    /// than `len_min` agree. The history is taken in as far as it has to be: what a match goes on with is
    /// found without.
    pub(crate) fn follow(
        &mut self,
        history: &[TokenId],
        ahead: &[TokenId],
        len_min: usize,
    ) -> Option<Match> {
        for &token in &history[self.num_followed.min(history.len())..] {
            let current = self.current.take();
            self.current = current.and_then(|current| current.after(token, history));
        }
        self.num_followed = history.len();
        let mut current = self.current;
        for &token in ahead {
            // What is ahead is a copy of what it was proposed from, or else another text.
            current = current.and_then(|current| current.after(token, history));
        }
        if let Some(current) = current.filter(|current| current.len >= len_min) {
            return Some(current);
        }
        self.extend(history);
        if ahead.is_empty() {
            self.current = self.find(history, len_min);
            return self.current;
        }
        let tail = history.len().saturating_sub(LEN_MAX);
        self.find(&[&history[tail..], ahead].concat(), len_min)
    }

    /// The place that agrees with the end of a text for longest, the latest of those that agree equally.
    /// None if fewer than `len_min` agree.
    pub(crate) fn find(&self, text: &[TokenId], len_min: usize) -> Option<Match> {
        let mut best: Option<Match> = None;
        for place in self.agreeing(text) {
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
    pub(crate) fn latest(&self, text: &[TokenId], len_min: usize) -> Option<Match> {
        let mut first: Option<Match> = None;
        for place in self.agreeing(text) {
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
    fn agreeing<'a>(&'a self, text: &'a [TokenId]) -> impl Iterator<Item = Match> + 'a {
        let from = text.len().checked_sub(KEY_LEN);
        let pair = from
            .filter(|_| !self.latest.is_empty())
            .map(|from| &text[from..]);
        let latest = pair.map(|pair| self.latest[slot(pair, self.latest.len())]);
        let earlier = |at: &u32| Some(self.places[*at as usize].earlier).filter(|&at| at != NONE);
        let chain = core::iter::successors(latest.filter(|&at| at != NONE), earlier);
        let followed = chain
            .take(SLOT_CHAIN_MAX)
            .map(|at| at as usize)
            .filter(|&at| at + 1 < self.places.len());
        let agreeing = followed.map(move |next| Match {
            next,
            len: self.num_agreeing(next, text),
        });
        agreeing
            .filter(|place| place.len >= KEY_LEN)
            .take(CHAIN_MAX)
    }

    /// Tokens before an index that agree with the end of a text, at most [`LEN_MAX`].
    fn num_agreeing(&self, next: usize, text: &[TokenId]) -> usize {
        let before = self.places[1..=next].iter().rev();
        let pairs = before.zip(text.iter().rev()).take(LEN_MAX);
        pairs
            .take_while(|(place, token)| place.token == **token)
            .count()
    }
}

/// Where a pair is noted, of a power of two of slots.
fn slot(pair: &[TokenId], num_slots: usize) -> usize {
    let both = u64::from(pair[0].0) << 32 | u64::from(pair[1].0);
    let mixed = both.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize & (num_slots - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn num_agreeing(history: &[TokenId], text: &[TokenId]) -> usize {
        let pairs = history.iter().rev().zip(text.iter().rev());
        pairs.take(LEN_MAX).take_while(|(a, b)| a == b).count()
    }

    fn tokens(text: &[u32]) -> Vec<TokenId> {
        text.iter().copied().map(TokenId).collect()
    }

    /// The same by looking at every place.
    fn plain(history: &[TokenId], text: &[TokenId], len_min: usize) -> Option<Match> {
        let all = (KEY_LEN..history.len()).rev().map(|next| Match {
            next,
            len: num_agreeing(&history[..next], text),
        });
        let latest = all.filter(|place| place.len >= KEY_LEN).take(CHAIN_MAX);
        let long = latest.filter(|place| place.len >= len_min);
        long.reduce(|best, place| if place.len > best.len { place } else { best })
    }

    proptest! {
        #[test]
        fn the_longest_latest_match_is_found(
            history in prop_oneof![
                prop::collection::vec(0u32..4, 0..40),
                prop::collection::vec(0u32..4, 60..SLOT_CHAIN_MAX),
            ],
            cuts in prop::collection::vec(0usize..SLOT_CHAIN_MAX, 0..4),
            ahead in prop::collection::vec(0u32..4, 0..3),
            len_min in 0usize..6,
        ) {
            let history = tokens(&history);
            let mut index = MatchIndex::default();
            for cut in cuts {
                let cut = cut.min(history.len());
                if cut >= index.places.len().saturating_sub(1) {
                    index.extend(&history[..cut]);
                }
            }
            index.extend(&history);
            let text = [history.clone(), tokens(&ahead)].concat();
            let found = index.find(&text, len_min);
            prop_assert_eq!(found, plain(&history, &text, len_min));
            if let Some(found) = found {
                prop_assert_eq!(num_agreeing(&history[..found.next], &text), found.len);
                prop_assert!(found.next < history.len());
            }
        }

        /// Whatever was followed before, no place agrees for longer than the one that is given.
        #[test]
        fn what_is_followed_is_as_long_as_what_is_found(
            history in prop::collection::vec(0u32..3, 0..60),
            cuts in prop::collection::vec((0usize..6, 0usize..4), 1..30),
            len_min in 2usize..5,
        ) {
            let history = tokens(&history);
            let mut index = MatchIndex::default();
            let mut len = 0;
            for (step, num_ahead) in cuts {
                len = (len + step).min(history.len());
                let end = (len + num_ahead).min(history.len());
                let found = index.follow(&history[..len], &history[len..end], len_min);
                let text = &history[..end];
                // Among all places before the end of the history, whether they were indexed or not.
                let all = (KEY_LEN..len).map(|next| num_agreeing(&history[..next], text));
                let longest = all.filter(|&agreeing| agreeing >= len_min).max();
                if history.len() < CHAIN_MAX {
                    prop_assert_eq!(found.map(|found| found.len), longest);
                }
                if let Some(found) = found {
                    prop_assert!(found.len <= num_agreeing(&history[..found.next], text));
                }
            }
        }
    }
}
