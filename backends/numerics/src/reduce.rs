//! The two orders of float summation: `run` and `lanes(64)`.
//!
//! Must never sum in any other order, nor skip or add a zero where the definition doesn't: adding
//! zero can turn -0 into +0.
//!
//! - **run**: ascending index, one accumulator starting from 0, fma.
//! - **lanes(64)**: lane `l`, starting from 0, runs over indices `l, l + 64, l + 128, ...`; the
//!   last partial round touches only the lanes it has values for. Then lanes are halved:
//!   `l += l + 32`, `l += l + 16`, `8`, `4`, `2`, `1`.

use crate::lanes::{Kernel, Lanes, dispatch};

/// Number of lanes of the lanes(64) order.
pub const LANES: usize = 64;

/// `sum a[i] * b[i]` in run order with fma. Panics if the lengths differ.
#[inline(always)]
pub fn dot_run(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "dot_run of unequal lengths");
    a.iter().zip(b).fold(0.0, |sum, (&a, &b)| a.mul_add(b, sum))
}

/// Halves the 64 lanes down to one value.
#[inline(always)]
pub fn tree64(lanes: &mut [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        for (l, h) in low.iter_mut().zip(&high[..half]) {
            *l += *h;
        }
        half /= 2;
    }
    lanes[0]
}

/// lanes(64) over `n` terms: `wide(acc, i)` takes the terms from `i` into a register of lanes,
/// `tail(acc, i)` the single term `i` into one lane.
///
/// `wide` and `tail` must perform the same operation; that is what keeps all widths equal.
#[inline(always)]
pub fn lanes64<L: Lanes>(
    n: usize,
    mut wide: impl FnMut(L, usize) -> L,
    mut tail: impl FnMut(f32, usize) -> f32,
) -> f32 {
    let mut registers = L::splat(0.0).row64();
    let rounds = n / LANES;
    for round in 0..rounds {
        for (r, acc) in registers.as_mut().iter_mut().enumerate() {
            *acc = wide(*acc, round * LANES + r * L::WIDTH);
        }
    }
    let mut lanes = [0.0; LANES];
    for (acc, to) in registers
        .as_ref()
        .iter()
        .zip(lanes.chunks_exact_mut(L::WIDTH))
    {
        acc.store(to);
    }
    for i in rounds * LANES..n {
        let lane = &mut lanes[i - rounds * LANES];
        *lane = tail(*lane, i);
    }
    tree64(&mut lanes)
}

/// `sum x[i]` in lanes(64).
#[inline(always)]
pub fn sum_lanes64<L: Lanes>(x: &[f32]) -> f32 {
    lanes64::<L>(
        x.len(),
        |acc, i| acc.add(L::load(&x[i..])),
        |acc, i| acc + x[i],
    )
}

/// `sum x[i]^2` in lanes(64) with fma.
#[inline(always)]
pub fn sum_squares_lanes64<L: Lanes>(x: &[f32]) -> f32 {
    lanes64::<L>(
        x.len(),
        |acc, i| {
            let v = L::load(&x[i..]);
            v.fma(v, acc)
        },
        |acc, i| x[i].mul_add(x[i], acc),
    )
}

/// `sum exp(x[i] - max)` in lanes(64), without storing the terms.
#[inline(always)]
pub fn sum_exp_lanes64<L: Lanes>(x: &[f32], max: f32) -> f32 {
    use crate::elementary::exp;
    lanes64::<L>(
        x.len(),
        |acc, i| acc.add(exp(L::load(&x[i..]).sub(L::splat(max)))),
        |acc, i| acc + exp(x[i] - max),
    )
}

/// Which sum a [`Sum`] computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Term {
    /// [`sum_lanes64`].
    Plain,
    /// [`sum_squares_lanes64`].
    Square,
    /// [`sum_exp_lanes64`] with this maximum.
    Exp(f32),
}

/// A lanes(64) sum over a slice as a [`Kernel`].
#[derive(Clone, Copy, Debug)]
pub struct Sum<'a> {
    /// What is summed.
    pub term: Term,
    /// Over these values.
    pub values: &'a [f32],
}

impl Kernel for Sum<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<L: Lanes>(self) -> f32 {
        match self.term {
            Term::Plain => sum_lanes64::<L>(self.values),
            Term::Square => sum_squares_lanes64::<L>(self.values),
            Term::Exp(max) => sum_exp_lanes64::<L>(self.values, max),
        }
    }
}

/// A lanes(64) sum at the widest level of this CPU.
pub fn sum(term: Term, values: &[f32]) -> f32 {
    dispatch(Sum { term, values })
}

/// `log(sum exp(x[i]))` as `max + log(sum exp(x[i] - max))`, in two parts: (max, log of the sum).
///
/// A log-probability is `(x[i] - max) - log_sum`, left to right. `x` must be finite, not empty.
pub fn log_sum_exp(x: &[f32]) -> (f32, f32) {
    let max = x
        .iter()
        .copied()
        .fold(f32::NEG_INFINITY, |m, v| Lanes::max(v, m));
    (max, crate::elementary::log(sum(Term::Exp(max), x)))
}
