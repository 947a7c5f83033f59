//! The passes of the sampler over a whole row.
//!
//! Must never decide anything by the order of a float sum: only maxima, comparisons and
//! elementwise functions live here.

use crate::elementary;
use crate::lanes::{Kernel, Lanes};

/// What one pass over a row learns.
pub struct Scanned {
    /// Neither NaN nor infinity was seen.
    pub all_finite: bool,
    /// The highest value, a zero being +0; meaningless if a NaN was seen.
    pub max: f32,
}

/// Finds the highest value and whether all are finite.
pub struct Scan<'a> {
    pub row: &'a [f32],
}

impl Kernel for Scan<'_> {
    type Output = Scanned;
    #[inline(always)]
    fn run<L: Lanes>(self) -> Scanned {
        let mut max = [L::splat(f32::NEG_INFINITY); 4];
        let mut magnitude = [L::bits_splat(0); 4];
        let mut chunks = self.row.chunks_exact(4 * L::WIDTH);
        for chunk in &mut chunks {
            for i in 0..4 {
                let x = L::load(&chunk[i * L::WIDTH..]);
                max[i] = x.max(max[i]);
                magnitude[i] = L::bits_max(magnitude[i], x.abs().to_bits());
            }
        }
        let mut highest = f32::NEG_INFINITY;
        let mut largest = 0;
        for i in 0..4 {
            let mut lanes = [0.0; 64];
            max[i].store(&mut lanes);
            highest = lanes[..L::WIDTH]
                .iter()
                .fold(highest, |m, &x| Lanes::max(x, m));
            largest = Ord::max(largest, L::bits_reduce_max(magnitude[i]));
        }
        for &x in chunks.remainder() {
            highest = Lanes::max(x, highest);
            largest = Ord::max(largest, Lanes::to_bits(Lanes::abs(x)));
        }
        let all_finite = largest < Lanes::to_bits(f32::INFINITY);
        Scanned {
            all_finite,
            max: highest + 0.0,
        }
    }
}

/// The lowest index whose value equals `value`, which must occur.
pub struct FirstEqual<'a> {
    pub row: &'a [f32],
    pub value: f32,
}

impl Kernel for FirstEqual<'_> {
    type Output = usize;
    #[inline(always)]
    fn run<L: Lanes>(self) -> usize {
        let wanted = L::splat(self.value);
        let mut start = 0;
        for chunk in self.row.chunks_exact(L::WIDTH) {
            if L::any(L::load(chunk).equal(wanted)) {
                break;
            }
            start += L::WIDTH;
        }
        let found = self.row[start..].iter().position(|&x| x == self.value);
        start + found.expect("the highest value of a row is in it")
    }
}

/// Writes negative infinity where the bit of a token is 0.
pub struct ApplyMask<'a> {
    pub row: &'a mut [f32],
    pub mask: &'a [u32],
}

impl Kernel for ApplyMask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (chunk, &word) in self.row.chunks_mut(32).zip(self.mask) {
            if word == 0 {
                chunk.fill(f32::NEG_INFINITY);
            } else if word != u32::MAX {
                for (b, x) in chunk.iter_mut().enumerate() {
                    *x = if word >> b & 1 == 1 {
                        *x
                    } else {
                        f32::NEG_INFINITY
                    };
                }
            }
        }
    }
}

/// Replaces each logit by `exp((l - max) / temperature) * 2^32`, which is exact after the `exp`.
pub struct Weights<'a> {
    pub terms: &'a mut [f32],
    pub max: f32,
    pub temperature: f32,
}

impl Kernel for Weights<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Weights {
            terms,
            max,
            temperature,
        } = self;
        elementary::map::<L>(
            terms,
            |x| weight(x, L::splat(max), L::splat(temperature)),
            |x| weight(x, max, temperature),
        );
    }
}

#[inline(always)]
fn weight<L: Lanes>(logit: L, max: L, temperature: L) -> L {
    elementary::exp(logit.sub(max).div(temperature)).mul(L::splat(super::ONE as f32))
}
