//! The 64-bit digest of a row of logits.
//!
//! Must never depend on the order in which the row is visited: it is a wrapping sum of mixed terms,
//! so any device can compute it in one pass, in any partition.

use crate::lanes::{Kernel, Lanes, dispatch};

/// The odd constant that spreads indices (2^64 over the golden ratio).
pub const INDEX_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// First multiplier of [`mix64`].
pub const MIX_1: u64 = 0xbf58_476d_1ce4_e5b9;
/// Second multiplier of [`mix64`].
pub const MIX_2: u64 = 0x94d0_49bb_1331_11eb;

/// The finaliser of SplitMix64: shifts of 30, 27 and 31 around two multiplications.
#[inline(always)]
pub const fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(MIX_1);
    x = (x ^ (x >> 27)).wrapping_mul(MIX_2);
    x ^ (x >> 31)
}

/// `sum mix64(bits(x[i]) ^ i * INDEX_FACTOR)`, wrapping; the bits are zero-extended.
pub fn digest(row: &[f32]) -> u64 {
    digest_from(row, 0)
}

/// The part that `row` adds to a digest when its first value has index `first`.
pub fn digest_from(row: &[f32], first: u64) -> u64 {
    dispatch(Digest { row, first })
}

struct Digest<'a> {
    row: &'a [f32],
    first: u64,
}

impl Kernel for Digest<'_> {
    type Output = u64;
    /// Integers only: the compiler vectorises it for whatever the level enables.
    #[inline(always)]
    fn run<L: Lanes>(self) -> u64 {
        let mut index = self.first.wrapping_mul(INDEX_FACTOR);
        let mut sum = 0u64;
        for x in self.row {
            sum = sum.wrapping_add(mix64(u64::from(x.to_bits()) ^ index));
            index = index.wrapping_add(INDEX_FACTOR);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_sum_of_its_parts_in_any_cut() {
        let row: Vec<f32> = (0..1000).map(|i| (i as f32).sqrt() - 9.0).collect();
        let by_definition = row.iter().enumerate().fold(0u64, |sum, (i, x)| {
            let index = (i as u64).wrapping_mul(INDEX_FACTOR);
            sum.wrapping_add(mix64(u64::from(x.to_bits()) ^ index))
        });
        assert_eq!(digest(&row), by_definition);
        for cut in [0, 1, 63, 500, 1000] {
            let (a, b) = row.split_at(cut);
            assert_eq!(
                digest(a).wrapping_add(digest_from(b, cut as u64)),
                by_definition
            );
        }
    }

    #[test]
    fn sees_every_bit_and_every_swap() {
        let row: Vec<f32> = (0..256).map(|i| i as f32).collect();
        let whole = digest(&row);
        for i in 0..row.len() {
            let mut other = row.clone();
            other[i] = f32::from_bits(other[i].to_bits() ^ 1);
            assert_ne!(digest(&other), whole);
            other = row.clone();
            other.swap(i, (i + 1) % 256);
            assert_ne!(digest(&other), whole);
        }
        assert_ne!(digest(&[0.0]), digest(&[-0.0]));
        assert_eq!(digest(&[]), 0);
    }

    /// SplitMix64 seeded with 0 gives this first output.
    #[test]
    fn known_answer() {
        assert_eq!(mix64(INDEX_FACTOR), 0xe220_a839_7b1d_cdaf);
    }
}
