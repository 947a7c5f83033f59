//! A set of ids that gives the lowest one first: a bit for each id, a bit for each word of these.

use alloc::{vec, vec::Vec};

/// Ids in a word.
const WORD_LEN: u32 = u64::BITS;

/// Some of the ids from 0 on.
#[derive(Clone, Debug)]
pub(super) struct FreeSet {
    words: Vec<u64>,
    /// Bit `i` of word `j`: whether anything is in `words[64 * j + i]`.
    filled: Vec<u64>,
    len: usize,
}

impl FreeSet {
    /// All ids below `num_ids`.
    pub(super) fn full(num_ids: u32) -> FreeSet {
        let num_words = num_ids.div_ceil(WORD_LEN) as usize;
        let mut set = FreeSet {
            words: vec![0; num_words],
            filled: vec![0; num_words.div_ceil(WORD_LEN as usize)],
            len: 0,
        };
        (0..num_ids).for_each(|id| set.insert(id));
        set
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<u32> {
        let group = self.filled.iter().position(|&group| group != 0)?;
        let word = group as u32 * WORD_LEN + self.filled[group].trailing_zeros();
        Some(word * WORD_LEN + self.words[word as usize].trailing_zeros())
    }

    /// Puts in what is not in it.
    pub(super) fn insert(&mut self, id: u32) {
        let (word, bit) = (id / WORD_LEN, 1 << (id % WORD_LEN));
        self.words[word as usize] |= bit;
        self.filled[(word / WORD_LEN) as usize] |= 1 << (word % WORD_LEN);
        self.len += 1;
    }

    /// Takes out what is in it.
    pub(super) fn remove(&mut self, id: u32) {
        let (word, bit) = (id / WORD_LEN, 1 << (id % WORD_LEN));
        self.words[word as usize] &= !bit;
        if self.words[word as usize] == 0 {
            self.filled[(word / WORD_LEN) as usize] &= !(1 << (word % WORD_LEN));
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lowest_comes_first_whatever_went_before(
            num_ids in prop_oneof![1u32..200, 4000u32..9000],
            toggled in prop::collection::vec((0u32..9000, 1u32..70), 0..40),
            num_taken in 0usize..9000,
        ) {
            let mut set = FreeSet::full(num_ids);
            let mut plain: BTreeSet<u32> = (0..num_ids).collect();
            let take = |set: &mut FreeSet, plain: &mut BTreeSet<u32>, num: usize| {
                for _ in 0..num {
                    let first = set.first();
                    assert_eq!(first, plain.pop_first());
                    first.into_iter().for_each(|id| set.remove(id));
                }
            };
            take(&mut set, &mut plain, num_taken);
            for (from, num) in toggled {
                for id in (from..from + num).filter(|&id| id < num_ids) {
                    if plain.insert(id) {
                        set.insert(id);
                    } else {
                        plain.remove(&id);
                        set.remove(id);
                    }
                }
                prop_assert_eq!(set.first(), plain.first().copied());
                prop_assert_eq!(set.len(), plain.len());
            }
            let rest = plain.len() + 1;
            take(&mut set, &mut plain, rest);
            prop_assert_eq!(set.len(), 0);
        }
    }
}
