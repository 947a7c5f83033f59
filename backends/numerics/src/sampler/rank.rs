//! The one ranking of the sampler: higher logit first, lower token id first among equals.
//!
//! Must never sort a whole vocabulary: top-k keeps a threshold, top-p halves one bucket.

use core::cmp::Reverse;

use crate::lanes::{Kernel, Lanes, Level, dispatch_at};

/// A token that may be drawn.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Rank and id, see [`key`].
    pub key: u64,
    /// Fixed-point weight, 1..=2^32.
    pub weight: u64,
}

/// A number that is greater for a token that ranks earlier: the logit's encoding made monotone in
/// the upper half, the complement of the id in the lower. Both zeros are equal.
#[inline(always)]
pub fn key(logit: f32, token: u32) -> u64 {
    let bits = (logit + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    };
    u64::from(ordered) << 32 | u64::from(!token)
}

/// The token of a key.
#[inline(always)]
pub fn token(key: u64) -> u32 {
    !(key as u32)
}

/// The logit of a key.
fn logit(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered >> 31 == 1 {
        ordered & !(1 << 31)
    } else {
        !ordered
    })
}

/// Appends the keys of the `k >= 1` first tokens of the ranking to `keys` (empty on entry), in no
/// order. Tokens at negative infinity are never taken, so there may be fewer.
pub fn top_k(level: Level, row: &[f32], k: usize, keys: &mut Vec<u64>) {
    dispatch_at(level, TopK { row, k, keys });
}

struct TopK<'a> {
    row: &'a [f32],
    k: usize,
    keys: &'a mut Vec<u64>,
}

impl Kernel for TopK<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let TopK { row, k, keys } = self;
        let full = Ord::max(2 * k, 1024);
        // Ids ascend, so a value equal to the threshold ranks after the k that are held.
        let mut threshold = f32::NEG_INFINITY;
        for (c, chunk) in row.chunks(64).enumerate() {
            if chunk.len() == 64 && !any_above::<L>(chunk, threshold) {
                continue;
            }
            for (i, &x) in chunk.iter().enumerate() {
                if x > threshold {
                    keys.push(key(x, (c * 64 + i) as u32));
                }
            }
            if keys.len() >= full {
                threshold = keep(keys, k);
            }
        }
        if keys.len() > k {
            keep(keys, k);
        }
    }
}

#[inline(always)]
fn any_above<L: Lanes>(chunk: &[f32], threshold: f32) -> bool {
    let mut highest = L::load(chunk);
    for part in chunk[L::WIDTH..].chunks_exact(L::WIDTH) {
        highest = highest.max(L::load(part));
    }
    L::any(highest.gt(L::splat(threshold)))
}

/// Keeps the `k` greatest keys and returns the logit of the least of them.
#[inline(never)]
fn keep(keys: &mut Vec<u64>, k: usize) -> f32 {
    let (_, &mut last, _) = keys.select_nth_unstable_by_key(k - 1, |&key| Reverse(key));
    keys.truncate(k);
    logit(last)
}

/// Number of buckets of [`TopP`]: the sign, the exponent and three bits of the mantissa.
const BUCKETS: usize = 1 << 12;

/// Scratch memory of the top-p cut.
#[derive(Debug)]
pub struct TopP {
    /// Sum of the weights whose keys start with the bucket's number.
    weights: Vec<u64>,
    /// The candidates of one bucket.
    ranked: Vec<Candidate>,
}

impl TopP {
    /// Empty scratch memory.
    pub fn new() -> TopP {
        TopP {
            weights: vec![0; BUCKETS],
            ranked: Vec::new(),
        }
    }

    /// The least key that stays, `p` in fixed point: a token stays if `before * 2^32 < p * total`,
    /// and the first always does. Hence the last to stay is the first whose weight brings the
    /// sum to that limit. Linear in the number of candidates, of which there must be one.
    pub fn cut(&mut self, candidates: &[Candidate], p: u64) -> u64 {
        let bucket = |c: &Candidate| (c.key >> 52) as usize;
        self.weights.fill(0);
        let mut total = 0u64;
        for c in candidates {
            self.weights[bucket(c)] += c.weight;
            total += c.weight;
        }
        let limit = u128::from(p) * u128::from(total);
        let reaches = |sum: u64| u128::from(sum) << 32 >= limit;
        let mut before = 0u64;
        let mut last = BUCKETS - 1;
        while self.weights[last] == 0 || !reaches(before + self.weights[last]) {
            before += self.weights[last];
            last -= 1;
        }
        self.ranked.clear();
        self.ranked
            .extend(candidates.iter().filter(|c| bucket(c) == last));
        let mut rest = &mut self.ranked[..];
        while rest.len() > 32 {
            let middle = rest.len() / 2;
            rest.select_nth_unstable_by_key(middle, |c| Reverse(c.key));
            let (head, tail) = rest.split_at_mut(middle);
            let sum = before + head.iter().map(|c| c.weight).sum::<u64>();
            if reaches(sum) {
                rest = head;
            } else {
                (rest, before) = (tail, sum);
            }
        }
        rest.sort_unstable_by_key(|c| Reverse(c.key));
        for c in rest.iter() {
            before += c.weight;
            if reaches(before) {
                return c.key;
            }
        }
        unreachable!("bucket {last} brings the sum to the limit");
    }
}
