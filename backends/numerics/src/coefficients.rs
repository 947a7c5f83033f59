//! Every constant of the elementary functions, in one table that Rust and CUDA share.
//!
//! Nothing here may be changed without the pinned digests of the tests: a coefficient is part of
//! the law. Arrays run from the highest power to the lowest, in the order that Horner's rule with
//! fma consumes them. Each polynomial was fitted to minimise the largest relative error of its
//! whole function; the figure beside it is that error before rounding.

/// `1.5 * 2^23`: adding it rounds |x| < 2^22 to an integer, which then sits in the low bits.
pub const SHIFT: f32 = 12_582_912.0;
/// `1 / ln 2`.
pub const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// The upper part of `ln 2`, 15 significant bits: its product with an exponent is exact.
pub const LN2_HI: f32 = f32::from_bits(0x3f31_7200);
/// `ln 2 - LN2_HI`.
pub const LN2_LO: f32 = f32::from_bits(0x35bf_be8e);
/// Above this, `exp` is infinite anyway.
pub const EXP_ARG_MAX: f32 = 89.0;
/// Below this, `exp` is zero anyway.
pub const EXP_ARG_MIN: f32 = -104.0;
/// `(exp(r) - 1 - r) / r^2` on |r| <= 0.347; 2^-28.
pub const EXP: [f32; 5] = [
    1.381_443_1e-3,
    8.368_797e-3,
    4.166_839_6e-2,
    1.666_652e-1,
    4.999_999_4e-1,
];
/// The encoding of `sqrt(1/2)`: mantissas are brought into `[sqrt(1/2), sqrt(2))`.
pub const SQRT_HALF_BITS: i32 = 0x3f35_04f3;
/// `(log(1 + f) - f) / f^2` on `[sqrt(1/2) - 1, sqrt(2) - 1]`; 2^-30.3.
pub const LOG: [f32; 10] = [
    6.725_067e-2,
    -1.167_806_24e-1,
    1.190_204_1e-1,
    -1.240_711_2e-1,
    1.421_751_4e-1,
    -1.666_769_4e-1,
    2.000_222_8e-1,
    -2.500_002_7e-1,
    3.333_331e-1,
    -5.0e-1,
];
/// `(tanh(x) - x) / x^3` in powers of `x^2` on |x| < 0.625.
pub const TANH: [f32; 5] = [
    -5.704_988_7e-3,
    2.063_908_8e-2,
    -5.373_971_6e-2,
    1.333_144_2e-1,
    -3.333_328e-1,
];
/// Below this, `tanh` is its polynomial; above, `1 - 2 / (exp(2x) + 1)`.
pub const TANH_SMALL: f32 = 0.625;
/// `2 * sqrt(2 / pi)`, of the tanh form of gelu.
pub const GELU_SCALE: f32 = f32::from_bits(0x3fcc_422a);
/// The cubic term of the tanh form of gelu.
pub const GELU_CUBIC: f32 = 0.044_715;

/// `1.5 * 2^52`, the float64 counterpart of [`SHIFT`].
pub const SHIFT_F64: f64 = 6_755_399_441_055_744.0;
/// The upper part of `ln 2` with 32 significant bits.
pub const LN2_HI_F64: f64 = f64::from_bits(0x3fe6_2e42_fee0_0000);
/// `ln 2 - LN2_HI_F64`.
pub const LN2_LO_F64: f64 = f64::from_bits(0x3dea_39ef_3579_3c76);
/// `pi / 2`, rounded.
pub const HALF_PI_HI: f64 = core::f64::consts::FRAC_PI_2;
/// `pi / 2 - HALF_PI_HI`.
pub const HALF_PI_LO: f64 = 6.123_233_995_736_766e-17;
/// `(sin(r) / r - 1) / r^2` in powers of `r^2` on |r| <= pi/4.
pub const SIN_F64: [f64; 6] = [
    1.589_690_995_211_55e-10,
    -2.505_076_025_340_686_3e-8,
    2.755_731_370_707_006_8e-6,
    -1.984_126_982_985_795e-4,
    8.333_333_333_322_49e-3,
    -1.666_666_666_666_663_2e-1,
];
/// `(cos(r) - 1 + r^2 / 2) / r^4` in powers of `r^2` on |r| <= pi/4.
pub const COS_F64: [f64; 6] = [
    -1.135_964_755_778_819_5e-11,
    2.087_572_321_298_175e-9,
    -2.755_731_435_139_066_3e-7,
    2.480_158_728_947_673e-5,
    -1.388_888_888_887_411e-3,
    4.166_666_666_666_66e-2,
];
