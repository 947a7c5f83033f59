//! 16 lanes in a zmm register: AVX-512.
//!
//! Must never hold arithmetic of its own: each method is one instruction of the [`Lanes`] trait
//! (or a few that move bits).

use core::arch::x86_64::*;

use super::{Kernel, Lanes};

/// 16 float32 lanes. Values exist only where AVX-512 is enabled, see [`Lanes`].
#[derive(Clone, Copy)]
pub struct F32x16(pub __m512);

/// Runs a kernel with 16 lanes.
///
/// # Safety
/// The CPU must have AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<F32x16>()
}

/// One intrinsic, whose instruction set the existence of an `F32x16` vouches for.
macro_rules! op {
    ($e:expr) => {{
        // SAFETY: lanes are used only inside functions that enable AVX-512 (see `Lanes`);
        // where a pointer is passed, the slice it came from was cut to WIDTH elements.
        unsafe { $e }
    }};
}

impl Lanes for F32x16 {
    const WIDTH: usize = 16;
    type Mask = __mmask16;
    type Bits = __m512i;
    type Row64 = [F32x16; 4];

    #[inline(always)]
    fn splat(x: f32) -> Self {
        op!(F32x16(_mm512_set1_ps(x)))
    }
    #[inline(always)]
    fn load(from: &[f32]) -> Self {
        let from = &from[..Self::WIDTH];
        // The slice holds WIDTH values, and the load needs no alignment.
        op!(F32x16(_mm512_loadu_ps(from.as_ptr())))
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        let to = &mut to[..Self::WIDTH];
        // The slice holds WIDTH values, and the store needs no alignment.
        op!(_mm512_storeu_ps(to.as_mut_ptr(), self.0))
    }
    #[inline(always)]
    fn row64(self) -> Self::Row64 {
        [self; 64 / Self::WIDTH]
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        op!(F32x16(_mm512_add_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        op!(F32x16(_mm512_sub_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        op!(F32x16(_mm512_mul_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        op!(F32x16(_mm512_div_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        op!(F32x16(_mm512_sqrt_ps(self.0)))
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        op!(F32x16(_mm512_fmadd_ps(self.0, b.0, c.0)))
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        op!(F32x16(_mm512_min_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        op!(F32x16(_mm512_max_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn to_bits(self) -> Self::Bits {
        op!(_mm512_castps_si512(self.0))
    }
    #[inline(always)]
    fn from_bits(bits: Self::Bits) -> Self {
        op!(F32x16(_mm512_castsi512_ps(bits)))
    }
    #[inline(always)]
    fn from_int(int: Self::Bits) -> Self {
        op!(F32x16(_mm512_cvtepi32_ps(int)))
    }
    #[inline(always)]
    fn bits_splat(n: i32) -> Self::Bits {
        op!(_mm512_set1_epi32(n))
    }
    #[inline(always)]
    fn bits_add(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn bits_sub(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm512_sub_epi32(a, b))
    }
    #[inline(always)]
    fn bits_and(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn bits_or(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn bits_xor(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn bits_max(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm512_max_epi32(a, b))
    }
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        // scalef multiplies by 2^floor(n) and rounds once, as the definition does.
        op!(F32x16(_mm512_scalef_ps(self.0, n.0)))
    }
    #[inline(always)]
    fn load_bf16(from: &[u16]) -> Self {
        let from = &from[..Self::WIDTH];
        op!({
            let half = _mm256_loadu_si256(from.as_ptr().cast());
            F32x16(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(
                _mm512_cvtepu16_epi32(half),
            )))
        })
    }
    #[inline(always)]
    fn load_i8(from: &[i8]) -> Self {
        let from = &from[..Self::WIDTH];
        op!({
            let bytes = _mm_loadu_si128(from.as_ptr().cast());
            F32x16(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)))
        })
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8]) {
        let to = &mut to[..Self::WIDTH];
        op!({
            let bytes = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(self.0));
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes);
        })
    }
    #[inline(always)]
    fn lt(self, b: Self) -> Self::Mask {
        op!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, b.0))
    }
    #[inline(always)]
    fn le(self, b: Self) -> Self::Mask {
        op!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, b.0))
    }
    #[inline(always)]
    fn equal(self, b: Self) -> Self::Mask {
        op!(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, b.0))
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        op!(F32x16(_mm512_mask_blend_ps(mask, no.0, yes.0)))
    }
    #[inline(always)]
    fn any(mask: Self::Mask) -> bool {
        mask != 0
    }
    #[inline(always)]
    fn bits_shl<const N: u32>(a: Self::Bits) -> Self::Bits {
        op!(_mm512_slli_epi32::<N>(a))
    }
    #[inline(always)]
    fn bits_sra<const N: u32>(a: Self::Bits) -> Self::Bits {
        op!(_mm512_srai_epi32::<N>(a))
    }
    #[inline(always)]
    fn bits_reduce_max(a: Self::Bits) -> i32 {
        op!(_mm512_reduce_max_epi32(a))
    }
}
