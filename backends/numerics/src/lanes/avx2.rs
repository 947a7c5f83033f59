//! 8 lanes in a ymm register: AVX2 and FMA.
//!
//! Must never hold arithmetic of its own: each method is one instruction of the [`Lanes`] trait
//! (or a few that move bits).

use core::arch::x86_64::*;

use super::{Kernel, Lanes};

/// 8 float32 lanes. Values exist only where AVX2 and FMA are enabled, see [`Lanes`].
#[derive(Clone, Copy)]
pub struct F32x8(pub __m256);

/// Runs a kernel with 8 lanes.
///
/// # Safety
/// The CPU must have AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<F32x8>()
}

/// One intrinsic, whose instruction set the existence of an `F32x8` vouches for.
macro_rules! op {
    ($e:expr) => {{
        // SAFETY: lanes are used only inside functions that enable AVX2 and FMA (see `Lanes`);
        // where a pointer is passed, the slice it came from was cut to WIDTH elements.
        unsafe { $e }
    }};
}

impl Lanes for F32x8 {
    const WIDTH: usize = 8;
    type Mask = __m256;
    type Bits = __m256i;
    type Row64 = [F32x8; 8];

    #[inline(always)]
    fn splat(x: f32) -> Self {
        op!(F32x8(_mm256_set1_ps(x)))
    }
    #[inline(always)]
    fn load(from: &[f32]) -> Self {
        let from = &from[..Self::WIDTH];
        // The slice holds WIDTH values, and the load needs no alignment.
        op!(F32x8(_mm256_loadu_ps(from.as_ptr())))
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        let to = &mut to[..Self::WIDTH];
        // The slice holds WIDTH values, and the store needs no alignment.
        op!(_mm256_storeu_ps(to.as_mut_ptr(), self.0))
    }
    #[inline(always)]
    fn row64(self) -> Self::Row64 {
        [self; 64 / Self::WIDTH]
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        op!(F32x8(_mm256_add_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        op!(F32x8(_mm256_sub_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        op!(F32x8(_mm256_mul_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        op!(F32x8(_mm256_div_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        op!(F32x8(_mm256_sqrt_ps(self.0)))
    }
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        op!(F32x8(_mm256_fmadd_ps(self.0, b.0, c.0)))
    }
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        op!(F32x8(_mm256_min_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        op!(F32x8(_mm256_max_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn to_bits(self) -> Self::Bits {
        op!(_mm256_castps_si256(self.0))
    }
    #[inline(always)]
    fn from_bits(bits: Self::Bits) -> Self {
        op!(F32x8(_mm256_castsi256_ps(bits)))
    }
    #[inline(always)]
    fn from_int(int: Self::Bits) -> Self {
        op!(F32x8(_mm256_cvtepi32_ps(int)))
    }
    #[inline(always)]
    fn bits_splat(n: i32) -> Self::Bits {
        op!(_mm256_set1_epi32(n))
    }
    #[inline(always)]
    fn bits_add(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn bits_sub(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    fn bits_and(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn bits_or(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn bits_xor(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn bits_max(a: Self::Bits, b: Self::Bits) -> Self::Bits {
        op!(_mm256_max_epi32(a, b))
    }
    #[inline(always)]
    fn load_bf16(from: &[u16]) -> Self {
        let from = &from[..Self::WIDTH];
        op!({
            let half = _mm_loadu_si128(from.as_ptr().cast());
            F32x8(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(
                _mm256_cvtepu16_epi32(half),
            )))
        })
    }
    #[inline(always)]
    fn load_i8(from: &[i8]) -> Self {
        let from = &from[..Self::WIDTH];
        op!({
            let bytes = _mm_loadl_epi64(from.as_ptr().cast());
            F32x8(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)))
        })
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8]) {
        let to = &mut to[..Self::WIDTH];
        op!({
            let int = _mm256_cvtps_epi32(self.0);
            let low = _mm256_castsi256_si128(int);
            let high = _mm256_extracti128_si256::<1>(int);
            let words = _mm_packs_epi32(low, high);
            _mm_storel_epi64(to.as_mut_ptr().cast(), _mm_packs_epi16(words, words));
        })
    }
    #[inline(always)]
    fn lt(self, b: Self) -> Self::Mask {
        op!(_mm256_cmp_ps::<_CMP_LT_OQ>(self.0, b.0))
    }
    #[inline(always)]
    fn le(self, b: Self) -> Self::Mask {
        op!(_mm256_cmp_ps::<_CMP_LE_OQ>(self.0, b.0))
    }
    #[inline(always)]
    fn equal(self, b: Self) -> Self::Mask {
        op!(_mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, b.0))
    }
    #[inline(always)]
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
        op!(F32x8(_mm256_blendv_ps(no.0, yes.0, mask)))
    }
    #[inline(always)]
    fn any(mask: Self::Mask) -> bool {
        op!(_mm256_movemask_ps(mask) != 0)
    }
    #[inline(always)]
    fn bits_shl<const N: u32>(a: Self::Bits) -> Self::Bits {
        op!(_mm256_sll_epi32(a, _mm_cvtsi32_si128(N as i32)))
    }
    #[inline(always)]
    fn bits_sra<const N: u32>(a: Self::Bits) -> Self::Bits {
        op!(_mm256_sra_epi32(a, _mm_cvtsi32_si128(N as i32)))
    }
    #[inline(always)]
    fn bits_reduce_max(a: Self::Bits) -> i32 {
        let mut each = [0i32; 8];
        op!(_mm256_storeu_si256(each.as_mut_ptr().cast(), a));
        each.into_iter().fold(i32::MIN, Ord::max)
    }
}
