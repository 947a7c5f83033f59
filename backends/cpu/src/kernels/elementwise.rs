//! Operations in which each output depends on a few inputs: no reduction, hence no order.

use lockstep_numerics::elementary::{sigmoid, silu};
use lockstep_numerics::lanes::{Kernel, Lanes};

/// `x = x + y`.
pub(crate) struct Add<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) y: &'a [f32],
}

impl Kernel for Add<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        assert_eq!(self.x.len(), self.y.len(), "rows of one width");
        for (x, y) in self.x.iter_mut().zip(self.y) {
            *x += y;
        }
    }
}

/// Whether no value is a NaN or an infinity.
pub(crate) struct AllFinite<'a> {
    pub(crate) x: &'a [f32],
}

impl Kernel for AllFinite<'_> {
    type Output = bool;
    #[inline(always)]
    fn run<L: Lanes>(self) -> bool {
        const EXPONENT: u32 = 0x7f80_0000;
        // The largest exponent: all ones for NaN and infinity only.
        let largest = self.x.iter().fold(0, |max, x| {
            let exponent = x.to_bits() & EXPONENT;
            if exponent > max { exponent } else { max }
        });
        largest != EXPONENT
    }
}

/// `out = silu(gate) * up`.
pub(crate) struct SiluMul<'a> {
    pub(crate) gate: &'a [f32],
    pub(crate) up: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Kernel for SiluMul<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let n = self.out.len();
        assert!(self.gate.len() == n && self.up.len() == n);
        let whole = n - n % L::WIDTH;
        for i in (0..whole).step_by(L::WIDTH) {
            let gate = silu(L::load(&self.gate[i..]));
            gate.mul(L::load(&self.up[i..])).store(&mut self.out[i..]);
        }
        for i in whole..n {
            self.out[i] = silu(self.gate[i]) * self.up[i];
        }
    }
}

/// `x = x * sigmoid(gate)`.
pub(crate) struct SigmoidMul<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) gate: &'a [f32],
}

impl Kernel for SigmoidMul<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let n = self.x.len();
        assert_eq!(self.gate.len(), n, "one gate per value");
        let whole = n - n % L::WIDTH;
        for i in (0..whole).step_by(L::WIDTH) {
            let gate = sigmoid(L::load(&self.gate[i..]));
            L::load(&self.x[i..]).mul(gate).store(&mut self.x[i..]);
        }
        for i in whole..n {
            self.x[i] *= sigmoid(self.gate[i]);
        }
    }
}

/// Rotates a head in place: element `i` with element `i + pairs`; elements from `2 * pairs` on stay.
pub(crate) struct Rotate<'a> {
    pub(crate) head: &'a mut [f32],
    pub(crate) cos: &'a [f32],
    pub(crate) sin: &'a [f32],
}

impl Kernel for Rotate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let pairs = self.cos.len();
        assert!(self.sin.len() == pairs && self.head.len() >= 2 * pairs);
        let (first, rest) = self.head.split_at_mut(pairs);
        let second = &mut rest[..pairs];
        let whole = pairs - pairs % L::WIDTH;
        for i in (0..whole).step_by(L::WIDTH) {
            let (x1, x2) = (L::load(&first[i..]), L::load(&second[i..]));
            let (cos, sin) = (L::load(&self.cos[i..]), L::load(&self.sin[i..]));
            x1.fma(cos, x2.mul(sin).neg()).store(&mut first[i..]);
            x2.fma(cos, x1.mul(sin)).store(&mut second[i..]);
        }
        for i in whole..pairs {
            let (x1, x2, cos, sin) = (first[i], second[i], self.cos[i], self.sin[i]);
            first[i] = x1.mul_add(cos, -(x2 * sin));
            second[i] = x2.mul_add(cos, x1 * sin);
        }
    }
}
