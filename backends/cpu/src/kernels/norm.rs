//! RMS norms and the L2 norm. Sums of squares are in lanes(64) order.

use lockstep_numerics::elementary::{rsqrt, silu};
use lockstep_numerics::lanes::{Kernel, Lanes};
use lockstep_numerics::reduce::sum_squares_lanes64;

/// `out = x * (1 / sqrt(mean + eps)) * weight`. Returns whether the sum of squares was finite: a row that
/// overflows would otherwise become zeros and go unnoticed.
pub(crate) struct RmsNorm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = bool;
    #[inline(always)]
    fn run<L: Lanes>(self) -> bool {
        let n = self.x.len();
        assert!(self.weight.len() == n && self.out.len() == n);
        let sum = sum_squares_lanes64::<L>(self.x);
        let inverse = rsqrt(sum / n as f32 + self.eps);
        let wide = L::splat(inverse);
        let whole = n - n % L::WIDTH;
        for i in (0..whole).step_by(L::WIDTH) {
            let x = L::load(&self.x[i..]).mul(wide);
            x.mul(L::load(&self.weight[i..])).store(&mut self.out[i..]);
        }
        for i in whole..n {
            self.out[i] = self.x[i] * inverse * self.weight[i];
        }
        sum.is_finite()
    }
}

/// `out = x * (1 / sqrt(mean + eps)) * weight * silu(gate)`.
pub(crate) struct GatedRmsNorm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) gate: &'a [f32],
    pub(crate) eps: f32,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for GatedRmsNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let n = self.x.len();
        assert!(self.weight.len() == n && self.gate.len() == n && self.out.len() == n);
        let sum = sum_squares_lanes64::<L>(self.x);
        let inverse = rsqrt(sum / n as f32 + self.eps);
        let wide = L::splat(inverse);
        let whole = n - n % L::WIDTH;
        for i in (0..whole).step_by(L::WIDTH) {
            let x = L::load(&self.x[i..]).mul(wide);
            x.mul(L::load(&self.weight[i..]))
                .mul(silu(L::load(&self.gate[i..])))
                .store(&mut self.out[i..]);
        }
        for i in whole..n {
            self.out[i] = self.x[i] * inverse * self.weight[i] * silu(self.gate[i]);
        }
    }
}

/// `x = x * (1 / sqrt(sum of squares + eps)) * scale`, in place.
pub(crate) struct L2Norm<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) eps: f32,
    pub(crate) scale: f32,
}

impl Kernel for L2Norm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        let inverse = rsqrt(sum_squares_lanes64::<L>(self.x) + self.eps);
        let (wide, scale) = (L::splat(inverse), L::splat(self.scale));
        let mut chunks = self.x.chunks_exact_mut(L::WIDTH);
        for chunk in &mut chunks {
            L::load(chunk).mul(wide).mul(scale).store(chunk);
        }
        for x in chunks.into_remainder() {
            *x = *x * inverse * self.scale;
        }
    }
}
