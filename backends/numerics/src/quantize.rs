//! q8: symmetric int8 in groups of 128 with one float32 scale per group.
//!
//! Must never saturate silently on NaN or infinity: both are errors that name the place.
//!
//! `s = amax / 127`, `q = round_even(x / s)` clamped to +-127; `s = 0` gives zeros. amax is
//! exact in any order. For tiny amax the scale may be subnormal or zero: the same rule holds.

use core::fmt;

use crate::coefficients::SHIFT;
use crate::groups::{GROUP, groups};
use crate::lanes::{Kernel, Lanes, dispatch};

/// The largest magnitude of a q8 value.
pub const Q8_MAX: f32 = 127.0;

/// A value that can't be quantised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotFinite {
    /// Row of the value (0 where a single row was given).
    pub row: usize,
    /// Index of the value in its row.
    pub index: usize,
    /// NaN or an infinity.
    pub value: f32,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, index, value } = self;
        write!(
            f,
            "row {row}, column {index} is {value}, expected a finite value"
        )
    }
}

impl core::error::Error for NotFinite {}

/// Quantises one group (at most 128 values) into `q` and returns its scale; a scale of NaN says
/// that the group holds NaN or infinity, and then `q` is unspecified.
#[inline(always)]
pub fn quantize_group<L: Lanes>(x: &[f32], q: &mut [i8]) -> f32 {
    debug_assert!(x.len() == q.len() && x.len() <= GROUP);
    // Magnitudes compare as integers in the order of their encodings, NaN and infinity on top.
    let mut wide_max = L::bits_splat(0);
    let chunks = x.chunks_exact(L::WIDTH);
    let mut amax = 0;
    for &v in chunks.remainder() {
        amax = Ord::max(amax, Lanes::to_bits(Lanes::abs(v)));
    }
    for chunk in chunks {
        wide_max = L::bits_max(wide_max, L::load(chunk).abs().to_bits());
    }
    amax = Ord::max(amax, L::bits_reduce_max(wide_max));
    let amax = f32::from_bits(amax as u32);
    if !amax.is_finite() {
        return f32::NAN;
    }
    let scale = amax / Q8_MAX;
    if scale == 0.0 {
        q.fill(0);
        return scale;
    }
    let mut from = x.chunks_exact(L::WIDTH);
    let mut to = q.chunks_exact_mut(L::WIDTH);
    for (from, to) in (&mut from).zip(&mut to) {
        quantize_lanes(L::load(from), L::splat(scale)).store_i8(to);
    }
    for (&from, to) in from.remainder().iter().zip(to.into_remainder()) {
        *to = quantize_lanes(from, scale) as i8;
    }
    scale
}

/// `round_even(x / s)` clamped to +-127, as integral floats.
#[inline(always)]
fn quantize_lanes<L: Lanes>(x: L, scale: L) -> L {
    // |x / s| stays under 191 even for subnormal scales, far below what SHIFT can round.
    let rounded = x.div(scale).add(L::splat(SHIFT)).sub(L::splat(SHIFT));
    rounded.min(L::splat(Q8_MAX)).max(L::splat(-Q8_MAX))
}

/// Quantises a row of any length into `q` (the same length) and `scales` (one per group).
///
/// # Errors
/// The first value that is NaN or infinite.
#[inline(always)]
pub fn quantize_row_lanes<L: Lanes>(
    x: &[f32],
    q: &mut [i8],
    scales: &mut [f32],
) -> Result<(), NotFinite> {
    assert_eq!(x.len(), q.len(), "quantised row of another length");
    assert_eq!(
        groups(x.len()),
        scales.len(),
        "scales of another number of groups"
    );
    let parts = x
        .chunks(GROUP)
        .zip(q.chunks_mut(GROUP))
        .zip(scales)
        .enumerate();
    for (g, ((x, q), scale)) in parts {
        *scale = quantize_group::<L>(x, q);
        if scale.is_nan() {
            return Err(first_not_finite(x, g * GROUP));
        }
    }
    Ok(())
}

#[cold]
fn first_not_finite(x: &[f32], offset: usize) -> NotFinite {
    let found = x.iter().enumerate().find(|(_, v)| !v.is_finite());
    let (index, &value) = found.expect("a group whose amax is not finite");
    NotFinite {
        row: 0,
        index: offset + index,
        value,
    }
}

struct QuantizeRow<'a> {
    x: &'a [f32],
    q: &'a mut [i8],
    scales: &'a mut [f32],
}

impl Kernel for QuantizeRow<'_> {
    type Output = Result<(), NotFinite>;
    #[inline(always)]
    fn run<L: Lanes>(self) -> Self::Output {
        quantize_row_lanes::<L>(self.x, self.q, self.scales)
    }
}

/// [`quantize_row_lanes`] at the widest level of this CPU.
///
/// # Errors
/// The first value that is NaN or infinite.
pub fn quantize_row(x: &[f32], q: &mut [i8], scales: &mut [f32]) -> Result<(), NotFinite> {
    dispatch(QuantizeRow { x, q, scales })
}

/// Int8 weights of a linear layer with one scale per (output row, group).
#[derive(Clone, Debug, PartialEq)]
pub struct Q8 {
    /// Output rows.
    pub rows: usize,
    /// Length of the reduction.
    pub cols: usize,
    /// `(rows, cols)`, row-major.
    pub values: Vec<i8>,
    /// `(rows, groups(cols))`, row-major.
    pub scales: Vec<f32>,
}

/// Quantises weights `(rows, cols)`, row-major. Panics if the length isn't `rows * cols`.
///
/// # Errors
/// The first weight that is NaN or infinite, by row and column.
pub fn quantize_weights(weights: &[f32], rows: usize, cols: usize) -> Result<Q8, NotFinite> {
    assert_eq!(weights.len(), rows * cols, "weights of ({rows}, {cols})");
    let per_row = groups(cols);
    let mut values = vec![0; rows * cols];
    let mut scales = vec![0.0; rows * per_row];
    for row in 0..rows {
        quantize_row(
            &weights[row * cols..][..cols],
            &mut values[row * cols..][..cols],
            &mut scales[row * per_row..][..per_row],
        )
        .map_err(|e| NotFinite { row, ..e })?;
    }
    Ok(Q8 {
        rows,
        cols,
        values,
        scales,
    })
}
