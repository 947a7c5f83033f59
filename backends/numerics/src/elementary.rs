//! Elementary functions in float32, each written once over [`Lanes`].
//!
//! They must never call libm or use an approximate instruction: every step is correctly rounded, so
//! the same bits come out of every machine. Errors are in units in the last place (ulp) of the
//! true value, measured against float64 by `tests/accuracy.rs`, which also holds these figures.
//!
//! | function | measured maximum error | over every float32 of |
//! | --- | --- | --- |
//! | [`exp`] | 0.89 ulp | the whole range |
//! | [`log`] | 0.86 ulp | all positive ones |
//! | [`log1p`] | 0.86 ulp | all above -1 |
//! | [`sigmoid`] | 2.41 ulp | -87 to 110 |
//! | [`silu`] | 3.22 ulp | -87 to 110 |
//! | [`softplus`] | 1.7 ulp | -110 to 110 |
//! | [`tanh`] | 1.33 ulp | -30 to 30 |
//! | [`gelu`] | 2.5 units of `abs(x) * 2^-24` | -30 to 30 |
//! | [`rsqrt`] | 1.5 ulp | all positive ones |

use crate::coefficients as c;
use crate::lanes::{Kernel, Lanes, dispatch};

/// Horner's rule with fma, highest power first.
#[inline(always)]
fn polynomial<L: Lanes, const N: usize>(coefficients: &[f32; N], x: L) -> L {
    let mut sum = L::splat(coefficients[0]);
    for &c in &coefficients[1..] {
        sum = sum.fma(x, L::splat(c));
    }
    sum
}

/// `e^x`. Exactly 1 at zero, 0 below -104, infinite above 88.72; subnormal results are right; NaN
/// stays NaN.
#[inline(always)]
pub fn exp<L: Lanes>(x: L) -> L {
    // The constant is on the left of both, so that NaN passes.
    let x = L::splat(c::EXP_ARG_MAX).min(x);
    let x = L::splat(c::EXP_ARG_MIN).max(x);
    let n = x
        .fma(L::splat(c::LOG2_E), L::splat(c::SHIFT))
        .sub(L::splat(c::SHIFT));
    // x - n * ln 2 as an exact upper part and a small correction, which stays apart until the
    // last but one addition: folding it in early would cost a quarter of an ulp.
    let high = n.fma(L::splat(-c::LN2_HI), x);
    let low = n.mul(L::splat(-c::LN2_LO));
    let r = high.add(low);
    let tail = r.mul(r).fma(polynomial(&c::EXP, r), low);
    L::splat(1.0).add(high.add(tail)).scale(n)
}

/// Splits a positive normal `x` into `2^e * (1 + f)` with `1 + f` in `[sqrt(1/2), sqrt(2))`.
#[inline(always)]
fn split<L: Lanes>(x: L) -> (L, L) {
    let offset = L::bits_sub(x.to_bits(), L::bits_splat(c::SQRT_HALF_BITS));
    let e = L::bits_sra::<23>(offset);
    let m = L::from_bits(L::bits_sub(x.to_bits(), L::bits_shl::<23>(e)));
    (L::from_int(e), m.sub(L::splat(1.0)))
}

/// `e * ln 2 + log(1 + f) + extra`, for `extra` far below an ulp of the rest or with `f = e = 0`.
#[inline(always)]
fn join<L: Lanes>(e: L, f: L, extra: L) -> L {
    let head = e.mul(L::splat(c::LN2_HI));
    // head is exact and either zero or larger than f, so high + rest is head + f without error.
    let high = head.add(f);
    let rest = f.sub(high.sub(head));
    let low = e.fma(L::splat(c::LN2_LO), extra);
    let tail = f.mul(f).fma(polynomial(&c::LOG, f), low);
    high.add(rest.add(tail))
}

/// The natural logarithm. `-inf` at zero, NaN below, `inf` at `inf`.
#[inline(always)]
pub fn log<L: Lanes>(x: L) -> L {
    let small = x.lt(L::splat(f32::MIN_POSITIVE));
    let scaled = L::select(small, x.mul(L::splat(8_388_608.0)), x);
    let (e, f) = split(scaled);
    let e = e.sub(L::select(small, L::splat(23.0), L::splat(0.0)));
    log_edges(x, join(e, f, L::splat(0.0)))
}

/// `y`, but for the arguments where a logarithm isn't finite, and NaN.
#[inline(always)]
fn log_edges<L: Lanes>(x: L, y: L) -> L {
    let zero = L::splat(0.0);
    let y = L::select(x.gt(zero), y, L::splat(f32::NAN));
    let y = L::select(x.equal(zero), L::splat(f32::NEG_INFINITY), y);
    L::select(x.equal(L::splat(f32::INFINITY)), x, y)
}

/// `log(1 + x)` for `x >= -1`, accurate near zero too.
#[inline(always)]
pub fn log1p<L: Lanes>(x: L) -> L {
    let one = L::splat(1.0);
    let s = one.add(x);
    // What the sum 1 + x lost, exactly, whichever of the two is larger.
    let x_part = s.sub(one);
    let lost = one.sub(s.sub(x_part)).add(x.sub(x_part));
    let (e, f) = split(s);
    let y = join(e, f, lost.div(s));
    // Below 2^-126 times a few the division may round twice; there the function is x itself.
    let y = L::select(x.abs().lt(L::splat(1.0e-30)), x, y);
    log_edges(s, y)
}

/// `1 / (1 + e^-x)`, as `1 / (1 + e)` or `e / (1 + e)` with `e = exp(-|x|)`.
#[inline(always)]
pub fn sigmoid<L: Lanes>(x: L) -> L {
    let e = exp(x.abs().neg());
    let one = L::splat(1.0);
    L::select(x.ge(L::splat(0.0)), one, e).div(one.add(e))
}

/// `x * sigmoid(x)`, as `x / (1 + e)` or `x * e / (1 + e)` with `e = exp(-|x|)`.
///
/// Below -87, where the result is subnormal, the error is absolute: at most 52 units of 2^-149.
#[inline(always)]
pub fn silu<L: Lanes>(x: L) -> L {
    let e = exp(x.abs().neg());
    L::select(x.ge(L::splat(0.0)), x, x.mul(e)).div(L::splat(1.0).add(e))
}

/// `log(1 + e^x)`, as `max(x, 0) + log1p(exp(-|x|))`.
#[inline(always)]
pub fn softplus<L: Lanes>(x: L) -> L {
    x.max(L::splat(0.0)).add(log1p(exp(x.abs().neg())))
}

/// The hyperbolic tangent, odd to the bit.
#[inline(always)]
pub fn tanh<L: Lanes>(x: L) -> L {
    let a = x.abs();
    let s = x.mul(x);
    let small = s.mul(x).fma(polynomial(&c::TANH, s), x);
    let one = L::splat(1.0);
    let large = one
        .sub(L::splat(2.0).div(exp(a.add(a)).add(one)))
        .copysign(x);
    L::select(a.lt(L::splat(c::TANH_SMALL)), small, large)
}

/// The tanh form of gelu, `x / 2 * (1 + tanh(u))` with `u = sqrt(2/pi) * (x + 0.044715 x^3)`,
/// evaluated as the equal `x * sigmoid(2u)`, which loses nothing where tanh is near -1.
#[inline(always)]
pub fn gelu<L: Lanes>(x: L) -> L {
    let cube = x.mul(x).mul(x);
    let u = L::splat(c::GELU_CUBIC).fma(cube, x);
    x.mul(sigmoid(u.mul(L::splat(c::GELU_SCALE))))
}

/// `1 / sqrt(x)`, two roundings.
#[inline(always)]
pub fn rsqrt<L: Lanes>(x: L) -> L {
    L::splat(1.0).div(x.sqrt())
}

/// A function from one float32 to one float32, to be mapped over a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// [`exp`].
    Exp,
    /// [`log`].
    Log,
    /// [`log1p`].
    Log1p,
    /// [`sigmoid`].
    Sigmoid,
    /// [`silu`].
    Silu,
    /// [`softplus`].
    Softplus,
    /// [`tanh`].
    Tanh,
    /// [`gelu`].
    Gelu,
    /// [`rsqrt`].
    Rsqrt,
}

impl Function {
    /// All of them, in the order of their declaration.
    pub const ALL: [Function; 9] = [
        Function::Exp,
        Function::Log,
        Function::Log1p,
        Function::Sigmoid,
        Function::Silu,
        Function::Softplus,
        Function::Tanh,
        Function::Gelu,
        Function::Rsqrt,
    ];
}

/// Replaces each value of a slice by a function of it: one [`Kernel`].
#[derive(Debug)]
pub struct Map<'a> {
    /// What to apply.
    pub function: Function,
    /// Read and overwritten.
    pub values: &'a mut [f32],
}

impl Kernel for Map<'_> {
    type Output = ();
    #[inline(always)]
    fn run<L: Lanes>(self) {
        match self.function {
            Function::Exp => map::<L>(self.values, exp::<L>, exp::<f32>),
            Function::Log => map::<L>(self.values, log::<L>, log::<f32>),
            Function::Log1p => map::<L>(self.values, log1p::<L>, log1p::<f32>),
            Function::Sigmoid => map::<L>(self.values, sigmoid::<L>, sigmoid::<f32>),
            Function::Silu => map::<L>(self.values, silu::<L>, silu::<f32>),
            Function::Softplus => map::<L>(self.values, softplus::<L>, softplus::<f32>),
            Function::Tanh => map::<L>(self.values, tanh::<L>, tanh::<f32>),
            Function::Gelu => map::<L>(self.values, gelu::<L>, gelu::<f32>),
            Function::Rsqrt => map::<L>(self.values, rsqrt::<L>, rsqrt::<f32>),
        }
    }
}

/// Applies `wide` to whole registers and `tail`, the same function on one lane, to the rest.
#[inline(always)]
pub fn map<L: Lanes>(values: &mut [f32], wide: impl Fn(L) -> L, tail: impl Fn(f32) -> f32) {
    let mut chunks = values.chunks_exact_mut(L::WIDTH);
    for chunk in &mut chunks {
        wide(L::load(chunk)).store(chunk);
    }
    for x in chunks.into_remainder() {
        *x = tail(*x);
    }
}

/// Maps a function over a slice at the widest level of this CPU.
pub fn apply(function: Function, values: &mut [f32]) {
    dispatch(Map { function, values });
}
