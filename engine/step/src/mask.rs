//! Bitmasks over the vocabulary. A mask knows its own width, so that one of the wrong size is refused at
//! the waist and never read past its end.

use crate::{Digest, MaskRow, TokenId};
use alloc::{vec, vec::Vec};
use serde::{Deserialize, Serialize};

/// The allowed tokens of one scored position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bitmask {
    vocab_size: u32,
    // Bit `t % 32` of word `t / 32`; bits past the vocabulary are zero.
    words: Vec<u32>,
}

impl Bitmask {
    /// A mask that allows nothing.
    pub fn none(vocab_size: u32) -> Bitmask {
        Bitmask {
            vocab_size,
            words: vec![0; vocab_size.div_ceil(32) as usize],
        }
    }

    /// A mask that allows every token.
    pub fn all(vocab_size: u32) -> Bitmask {
        let mut mask = Bitmask {
            vocab_size,
            words: vec![!0; vocab_size.div_ceil(32) as usize],
        };
        mask.clear_tail();
        mask
    }

    /// A mask over these words, of which there must be one per 32 tokens. Bits past the vocabulary are
    /// cleared. None if the number of words is wrong.
    pub fn from_words(vocab_size: u32, words: Vec<u32>) -> Option<Bitmask> {
        if words.len() != vocab_size.div_ceil(32) as usize {
            return None;
        }
        let mut mask = Bitmask { vocab_size, words };
        mask.clear_tail();
        Some(mask)
    }

    fn clear_tail(&mut self) {
        let used = self.vocab_size % 32;
        if used != 0
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1 << used) - 1;
        }
    }

    /// The number of tokens that this mask speaks of.
    pub fn vocab_size(&self) -> u32 {
        self.vocab_size
    }

    /// Bit `t % 32` of word `t / 32` is set where token `t` is allowed.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Becomes a copy of another mask.
    pub fn copy_from(&mut self, other: &Bitmask) {
        self.vocab_size = other.vocab_size;
        self.words.clone_from(&other.words);
    }

    /// Takes over these words, of which there must be one per 32 tokens. Bits past the vocabulary are
    /// cleared.
    ///
    /// # Panics
    /// If the number of words is wrong.
    pub fn assign(&mut self, words: &[u32]) {
        self.words.copy_from_slice(words);
        self.clear_tail();
    }

    /// Forbids everything.
    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Forbids what the other mask, of the same width, forbids.
    ///
    /// # Panics
    /// If its width is another.
    pub fn intersect(&mut self, other: &Bitmask) {
        assert_eq!(self.vocab_size, other.vocab_size, "masks of one width");
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word &= other;
        }
    }

    /// Allows a token. Tokens outside the vocabulary stay forbidden.
    pub fn allow(&mut self, token: TokenId) {
        if token.0 < self.vocab_size {
            self.words[(token.0 / 32) as usize] |= 1 << (token.0 % 32);
        }
    }

    /// Forbids a token.
    pub fn forbid(&mut self, token: TokenId) {
        if token.0 < self.vocab_size {
            self.words[(token.0 / 32) as usize] &= !(1 << (token.0 % 32));
        }
    }

    /// Whether a token is allowed.
    pub fn allows(&self, token: TokenId) -> bool {
        token.0 < self.vocab_size && self.words[(token.0 / 32) as usize] >> (token.0 % 32) & 1 == 1
    }

    /// A digest of width and bits: what is written down of a mask where the mask itself would be too large.
    /// Words are `u32` pairs in ascending order, each mixed into 64 bits by multiplication and shift.
    pub fn digest(&self) -> Digest {
        let mix = |hash: u64, word: u64| {
            let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        };
        let pairs = self.words.chunks(2).map(|pair| {
            let high = pair.get(1).copied().unwrap_or(0);
            u64::from(pair[0]) | u64::from(high) << 32
        });
        Digest(pairs.fold(mix(0x6d61_736b, u64::from(self.vocab_size)), mix))
    }

    /// How many tokens are allowed.
    pub fn num_allowed(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }
}

/// The masks of a step, by row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaskSet {
    /// Row `i` is [`MaskRow`]`(i)`. A row is None where the draw no longer matters, since a draft before
    /// it was rejected by the grammar: such a position is drawn without a mask and never committed.
    pub rows: Vec<Option<Bitmask>>,
}

impl MaskSet {
    /// The mask of a row.
    ///
    /// # Panics
    /// If the step has no such row: rows and scored positions are matched when the plan is checked.
    pub fn get(&self, row: MaskRow) -> Option<&Bitmask> {
        assert!(
            (row.0 as usize) < self.rows.len(),
            "mask row {row} of {} does not exist",
            self.rows.len()
        );
        self.rows[row.0 as usize].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_never_allows_past_its_vocabulary() {
        for vocab_size in [1, 31, 32, 33, 63, 64, 65, 257] {
            let mut mask = Bitmask::all(vocab_size);
            assert_eq!(mask.num_allowed(), vocab_size);
            assert!(mask.allows(TokenId(vocab_size - 1)));
            assert!(!mask.allows(TokenId(vocab_size)));
            mask.allow(TokenId(vocab_size));
            assert_eq!(mask.num_allowed(), vocab_size);
            mask.forbid(TokenId(0));
            assert_eq!(mask.num_allowed(), vocab_size - 1);
        }
    }

    #[test]
    fn masks_are_copied_cleared_and_intersected() {
        let mut mask = Bitmask::all(40);
        let mut other = Bitmask::none(40);
        other.allow(TokenId(33));
        other.allow(TokenId(3));
        mask.intersect(&other);
        assert_eq!(mask, other);
        mask.clear();
        assert_eq!(mask, Bitmask::none(40));
        mask.assign(&[!0, !0]);
        assert_eq!(mask, Bitmask::all(40));
        mask.copy_from(&other);
        assert_eq!(mask, other);
    }

    #[test]
    fn every_bit_and_the_width_are_part_of_the_digest() {
        for vocab_size in [1, 33, 64, 257] {
            let mut seen = alloc::collections::BTreeSet::new();
            let base = Bitmask::none(vocab_size);
            assert!(seen.insert(base.digest()));
            assert!(seen.insert(Bitmask::none(vocab_size + 1).digest()));
            for token in 0..vocab_size {
                let mut mask = base.clone();
                mask.allow(TokenId(token));
                assert!(seen.insert(mask.digest()), "bit {token} of {vocab_size}");
            }
        }
        // It is part of captures, so it stays what it is.
        let mut mask = Bitmask::none(40);
        mask.allow(TokenId(33));
        assert_eq!(mask.digest(), Digest(0x0e16_99f7_7ae3_357a));
    }

    #[test]
    fn words_of_the_wrong_width_are_refused() {
        assert_eq!(Bitmask::from_words(33, vec![0; 1]), None);
        let mask = Bitmask::from_words(33, vec![!0; 2]).expect("two words for 33 tokens");
        assert_eq!(mask.num_allowed(), 33);
    }
}
