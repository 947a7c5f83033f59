//! Conversions between float32 and the 16-bit floats.
//!
//! Must never flush a subnormal: checkpoints widen exactly, and narrowing rounds to nearest even.

/// bf16 to float32, exactly.
#[inline(always)]
pub const fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits((x as u32) << 16)
}

/// float32 to bf16, to nearest, ties to even. NaN stays a (quiet) NaN; overflow gives infinity.
#[inline(always)]
pub const fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return ((bits >> 16) as u16) | 0x0040;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// f16 to float32, exactly, subnormals, infinities and NaN included.
#[inline(always)]
pub const fn f16_to_f32(x: u16) -> f32 {
    let sign = ((x & 0x8000) as u32) << 16;
    let rest = (x & 0x7fff) as u32;
    let magnitude = if rest >= 0x7c00 {
        f32::from_bits((rest << 13) | 0x7f80_0000)
    } else {
        // Read with a float32 exponent the value is 2^-112 of itself, subnormals included; the
        // product with a power of two is exact.
        f32::from_bits(rest << 13) * f32::from_bits((127 + 112) << 23)
    };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// Widens a row of bf16. Panics if the lengths differ.
pub fn widen_bf16(from: &[u16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "widen_bf16 of unequal lengths");
    to.iter_mut()
        .zip(from)
        .for_each(|(t, &f)| *t = bf16_to_f32(f));
}

/// Widens a row of f16. Panics if the lengths differ.
pub fn widen_f16(from: &[u16], to: &mut [f32]) {
    assert_eq!(from.len(), to.len(), "widen_f16 of unequal lengths");
    to.iter_mut()
        .zip(from)
        .for_each(|(t, &f)| *t = f16_to_f32(f));
}
