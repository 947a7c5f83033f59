//! Finds where the end of a text occurred before in a history of tokens, so that what followed there can be
//! proposed. Bounded in time and memory. Pairs of tokens share slots, but every place is compared with the
//! tokens themselves: the same history gives the same answer, and no other pair is ever taken for the one
//! that was looked for.

use alloc::{vec, vec::Vec};
use lockstep_step::TokenId;

/// Tokens that must agree before a place is looked at.
const KEY_LEN: usize = 2;

/// Places that are remembered per slot, the latest ones.
const PLACES: usize = 8;

/// Tokens of history per slot, at most.
const TOKENS_PER_SLOT: usize = 4;

/// Slots at least; always a power of two.
const SLOTS_MIN: usize = 16;

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
    /// By slot: the indices after the latest occurrences of its pairs, the latest first. They lie side by side,
    /// so that a question reads all at once and follows no links.
    slots: Vec<[u32; PLACES]>,
    /// Indices that have been taken in.
    num_taken: usize,
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
        if history.len() > self.slots.len() * TOKENS_PER_SLOT {
            // Taken in anew: which pairs share a slot depends on how many there are.
            let num_slots = history.len().next_power_of_two() / TOKENS_PER_SLOT;
            self.slots = vec![[NONE; PLACES]; num_slots.max(SLOTS_MIN)];
            self.num_taken = 0;
        }
        for next in self.num_taken.max(KEY_LEN)..=history.len() {
            let slot = slot(&history[next - KEY_LEN..next], self.slots.len());
            let places = &mut self.slots[slot];
            places.copy_within(..PLACES - 1, 1);
            places[0] = next as u32;
        }
        self.num_taken = history.len() + 1;
    }

    /// A place that agrees for longest with the end of a history that is followed by `ahead`. The history is
    /// taken in as far as it has to be: what a match goes on with is found without.
    pub(crate) fn follow(&mut self, history: &[TokenId], ahead: &[TokenId]) -> Option<Match> {
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
        if current.is_some() {
            return current;
        }
        self.extend(history);
        if ahead.is_empty() {
            self.current = self.find(history, history, KEY_LEN);
            return self.current;
        }
        let tail = history.len().saturating_sub(LEN_MAX);
        self.find(history, &[&history[tail..], ahead].concat(), KEY_LEN)
    }

    /// The place that agrees with the end of a text for longest, the latest of those that agree equally.
    /// None if fewer than `len_min` agree.
    pub(crate) fn find(
        &self,
        history: &[TokenId],
        text: &[TokenId],
        len_min: usize,
    ) -> Option<Match> {
        let mut best: Option<Match> = None;
        for place in self.agreeing(history, text) {
            if place.len >= len_min && best.is_none_or(|best| place.len > best.len) {
                best = Some(place);
            }
            if best.is_some_and(|best| best.len == LEN_MAX) {
                break;
            }
        }
        best
    }

    /// The latest place whose end agrees with the end of a text, more tokens than a pair being preferred: what
    /// comes next is best told by what was said last. The history is taken in.
    pub(crate) fn latest(&mut self, history: &[TokenId], text: &[TokenId]) -> Option<Match> {
        self.extend(history);
        let mut places = self.agreeing(history, text);
        let first = places.next()?;
        let longer = core::iter::once(first)
            .chain(places)
            .find(|place| place.len > KEY_LEN);
        longer.or(Some(first))
    }

    /// Places that agree in the last [`KEY_LEN`] tokens at least, the latest first.
    fn agreeing<'a>(
        &'a self,
        history: &'a [TokenId],
        text: &'a [TokenId],
    ) -> impl Iterator<Item = Match> + 'a {
        let from = text.len().checked_sub(KEY_LEN);
        let from = from.filter(|_| !self.slots.is_empty());
        let places = from.map(|from| &self.slots[slot(&text[from..], self.slots.len())]);
        let places = places.into_iter().flatten();
        let places = places.take_while(|&&next| next != NONE);
        let places = places.map(|&next| next as usize);
        // What nothing follows is no place.
        let followed = places.filter(|&next| next < history.len());
        let all = followed.map(|next| Match {
            next,
            len: num_agreeing(&history[..next], text),
        });
        all.filter(|place| place.len >= KEY_LEN)
    }
}

/// Where a pair is noted, of a power of two of slots.
fn slot(pair: &[TokenId], num_slots: usize) -> usize {
    let both = u64::from(pair[0].0) << 32 | u64::from(pair[1].0);
    let mixed = both.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize & (num_slots - 1)
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

    /// The same by looking at every place, the latest of the slot.
    fn plain(history: &[TokenId], text: &[TokenId], len_min: usize) -> Option<Match> {
        let num_slots = (history.len().next_power_of_two() / TOKENS_PER_SLOT).max(SLOTS_MIN);
        let slot_of = |text: &[TokenId]| slot(&text[text.len() - KEY_LEN..], num_slots);
        let all = (KEY_LEN..=history.len()).rev();
        let own = all.filter(|&next| slot_of(&history[..next]) == slot_of(text));
        let followed = own.take(PLACES).filter(|&next| next < history.len());
        let agreeing = followed.map(|next| Match {
            next,
            len: num_agreeing(&history[..next], text),
        });
        let long = agreeing.filter(|place| place.len >= len_min.max(KEY_LEN));
        long.reduce(|best, place| if place.len > best.len { place } else { best })
    }

    proptest! {
        #[test]
        fn the_longest_latest_match_is_found(
            history in prop_oneof![
                prop::collection::vec(0u32..4, 0..40),
                prop::collection::vec(0u32..4, 60..300),
            ],
            cuts in prop::collection::vec(0usize..300, 0..4),
            ahead in prop::collection::vec(0u32..4, 0..3),
            len_min in 0usize..6,
        ) {
            let history = tokens(&history);
            let mut index = MatchIndex::default();
            for cut in cuts {
                let cut = cut.min(history.len());
                if cut >= index.num_taken.saturating_sub(1) {
                    index.extend(&history[..cut]);
                }
            }
            index.extend(&history);
            let text = [history.clone(), tokens(&ahead)].concat();
            let found = index.find(&history, &text, len_min);
            if text.len() < KEY_LEN {
                prop_assert_eq!(found, None);
                return Ok(());
            }
            prop_assert_eq!(found, plain(&history, &text, len_min));
            if let Some(found) = found {
                prop_assert_eq!(num_agreeing(&history[..found.next], &text), found.len);
                prop_assert!(found.next < history.len());
            }
        }

        /// Whatever was followed before, no place agrees for longer than the one that is given.
        #[test]
        fn what_is_followed_is_as_long_as_what_is_found(
            history in prop_oneof![
                prop::collection::vec(0u32..2, 0..=PLACES),
                prop::collection::vec(0u32..3, 0..60),
            ],
            cuts in prop::collection::vec((0usize..6, 0usize..4), 1..30),
        ) {
            let history = tokens(&history);
            let mut index = MatchIndex::default();
            let mut len = 0;
            for (step, num_ahead) in cuts {
                len = (len + step).min(history.len());
                let end = (len + num_ahead).min(history.len());
                let found = index.follow(&history[..len], &history[len..end]);
                let text = &history[..end];
                // Among all places before the end of the history, whether they were indexed or not.
                let all = (KEY_LEN..len).map(|next| num_agreeing(&history[..next], text));
                let longest = all.filter(|&agreeing| agreeing >= KEY_LEN).max();
                if history.len() <= PLACES {
                    // One that goes on into what is ahead can be longer still.
                    prop_assert!(found.map(|found| found.len) >= longest);
                }
                if let Some(found) = found {
                    prop_assert!(found.len <= num_agreeing(&history[..found.next], text));
                }
            }
        }
    }
}
