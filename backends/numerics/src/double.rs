//! Elementary functions in float64 for tables that are computed once on the host.
//!
//! They must never call libm, whose last bit differs between machines. Measured against it by the
//! tests: exp and log within 1.1 ulp of float64 on the ranges that rotary uses; sin and
//! cos, once rounded to float32, within 0.500001 ulp for |x| < 2^30.

use crate::coefficients as c;

/// `e^x` for |x| <= 700. A Taylor series to degree 13 after reduction by `ln 2`.
pub fn exp(x: f64) -> f64 {
    assert!(
        x.abs() <= 700.0,
        "exp in float64 is defined for |x| <= 700, not {x}"
    );
    let n = x.mul_add(core::f64::consts::LOG2_E, c::SHIFT_F64) - c::SHIFT_F64;
    let high = n.mul_add(-c::LN2_HI_F64, x);
    let low = n * -c::LN2_LO_F64;
    let r = high + low;
    // 1/13! .. 1/2!, each quotient correctly rounded from an exact factorial.
    let mut factorial: f64 = 6_227_020_800.0;
    let mut q: f64 = 1.0 / factorial;
    for k in (3..=13).rev() {
        factorial /= f64::from(k);
        q = q.mul_add(r, 1.0 / factorial);
    }
    let p = 1.0 + (high + (r * r).mul_add(q, low));
    p * f64::from_bits((((n as i64) + 1023) as u64) << 52)
}

/// The natural logarithm of a positive normal number. The series of `2 atanh(f / (2 + f))`.
pub fn log(x: f64) -> f64 {
    assert!(
        x.is_normal() && x > 0.0,
        "log in float64 is defined for positive normals, not {x}"
    );
    let sqrt_half = 0x3fe6_a09e_667f_3bcd_u64;
    let e = (x.to_bits().wrapping_sub(sqrt_half) as i64) >> 52;
    let f = f64::from_bits(x.to_bits().wrapping_sub((e as u64) << 52)) - 1.0;
    let e = e as f64;
    let z = f / (2.0 + f);
    let w = z * z;
    let mut q: f64 = 1.0 / 23.0;
    for k in (1..=10).rev() {
        q = q.mul_add(w, 1.0 / f64::from(2 * k + 1));
    }
    // log(1 + f) = f - f * z + 2 z^3 q, since 2z = f - f * z.
    let tail = (2.0 * z * w).mul_add(q, e.mul_add(c::LN2_LO_F64, -(f * z)));
    let head = e * c::LN2_HI_F64;
    let high = head + f;
    high + ((f - (high - head)) + tail)
}

/// `base^exponent` for a positive base: `exp(exponent * log(base))`.
pub fn pow(base: f64, exponent: f64) -> f64 {
    exp(exponent * log(base))
}

/// Sine and cosine of |x| < 2^30, for rounding to float32.
pub fn sin_cos(x: f64) -> (f64, f64) {
    assert!(
        x.abs() < 1_073_741_824.0,
        "sin_cos is defined for |x| < 2^30, not {x}"
    );
    let n = x.mul_add(core::f64::consts::FRAC_2_PI, c::SHIFT_F64) - c::SHIFT_F64;
    let r = n.mul_add(-c::HALF_PI_LO, n.mul_add(-c::HALF_PI_HI, x));
    let z = r * r;
    let sin = (z * r).mul_add(horner(&c::SIN_F64, z), r);
    let cos = (z * z).mul_add(horner(&c::COS_F64, z), z.mul_add(-0.5, 1.0));
    match (n as i64) & 3 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// Horner's rule with fma, highest power first.
fn horner(coefficients: &[f64; 6], x: f64) -> f64 {
    coefficients
        .iter()
        .fold(0.0, |sum: f64, &c| sum.mul_add(x, c))
}
