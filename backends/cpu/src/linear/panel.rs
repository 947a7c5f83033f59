//! Sixteen outputs at a time, on every instruction set. The kernels of `q8.rs` and `f32.rs` are written
//! once over [`Panel`], so that the instruction sets differ in nothing but these few operations, each of
//! which is exact or correctly rounded.

/// Outputs of one panel.
pub const PANEL: usize = 16;

/// Sixteen float32 and sixteen int32 lanes.
///
/// # Safety
/// The methods of an implementation may be called only on a machine that has its instruction set, and the
/// pointers must be readable (writable) for sixteen values.
pub unsafe trait Panel {
    /// Sixteen float32.
    type F: Copy;
    /// Sixteen int32.
    type I: Copy;
    /// Sixteen quads of weights, as [`Panel::load_weights`] leaves them.
    type W: Copy;

    /// Sixteen times the same float32.
    unsafe fn splat(x: f32) -> Self::F;
    /// Reads sixteen float32.
    unsafe fn load(from: *const f32) -> Self::F;
    /// Writes sixteen float32.
    unsafe fn store(to: *mut f32, x: Self::F);
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a + b`.
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`.
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    /// Sixteen times the same int32.
    unsafe fn splat_i32(x: i32) -> Self::I;
    /// `a + b`.
    unsafe fn add_i32(a: Self::I, b: Self::I) -> Self::I;
    /// To float32; exact below 2^24.
    unsafe fn to_f32(x: Self::I) -> Self::F;
    /// Reads 64 weights, four for each of sixteen outputs, stored as `w + 128`.
    unsafe fn load_weights(from: *const u8) -> Self::W;
    /// For each lane `acc + sum over 4 of w * x`, where `x` is four signed bytes in one int32. Where
    /// [`Panel::BIASED`] holds, `w` counts 128 too much.
    unsafe fn dot4(acc: Self::I, w: Self::W, x: i32) -> Self::I;
    /// Asks for the cache line at an address that will be read soon. Any address will do.
    unsafe fn prefetch(at: *const u8);
    /// Whether `dot4` leaves the weights' offset of 128 in: the accumulator must then start at
    /// `-128 * sum of x`.
    const BIASED: bool;
}

/// Plain Rust.
pub struct ScalarPanel;

// SAFETY: no instruction set is needed.
unsafe impl Panel for ScalarPanel {
    type F = [f32; PANEL];
    type I = [i32; PANEL];
    type W = [[i32; 4]; PANEL];
    const BIASED: bool = false;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::F {
        [x; PANEL]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        // SAFETY: the caller promises sixteen readable values.
        unsafe { from.cast::<[f32; PANEL]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: Self::F) {
        // SAFETY: the caller promises sixteen writable values.
        unsafe { to.cast::<[f32; PANEL]>().write_unaligned(x) };
    }
    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
    }
    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }
    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        std::array::from_fn(|lane| a[lane] * b[lane])
    }
    #[inline(always)]
    unsafe fn splat_i32(x: i32) -> Self::I {
        [x; PANEL]
    }
    #[inline(always)]
    unsafe fn add_i32(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }
    #[inline(always)]
    unsafe fn to_f32(x: Self::I) -> Self::F {
        std::array::from_fn(|lane| x[lane] as f32)
    }
    #[inline(always)]
    unsafe fn prefetch(_at: *const u8) {}
    #[inline(always)]
    unsafe fn load_weights(from: *const u8) -> Self::W {
        // SAFETY: the caller promises 64 readable bytes.
        let bytes = unsafe { from.cast::<[[u8; 4]; PANEL]>().read_unaligned() };
        bytes.map(|quad| quad.map(|byte| i32::from(byte) - 128))
    }
    #[inline(always)]
    unsafe fn dot4(acc: Self::I, w: Self::W, x: i32) -> Self::I {
        let x = x.to_le_bytes().map(|byte| i32::from(byte as i8));
        std::array::from_fn(|lane| {
            let w = w[lane];
            acc[lane] + w[0] * x[0] + w[1] * x[1] + w[2] * x[2] + w[3] * x[3]
        })
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2Panel, Avx512Panel};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Panel;
    use std::arch::x86_64::*;

    /// AVX2 and FMA: two registers of eight.
    pub struct Avx2Panel;

    // SAFETY: the contract of the trait: called only where AVX2 and FMA exist.
    unsafe impl Panel for Avx2Panel {
        type F = [__m256; 2];
        type I = [__m256i; 2];
        type W = [__m256i; 2];
        const BIASED: bool = false;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self::F {
            // SAFETY: the machine has AVX2, by the contract of the trait; so below.
            unsafe { [_mm256_set1_ps(x); 2] }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self::F {
            // SAFETY: sixteen readable values.
            unsafe { [_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))] }
        }
        #[inline(always)]
        unsafe fn store(to: *mut f32, x: Self::F) {
            // SAFETY: sixteen writable values.
            unsafe {
                _mm256_storeu_ps(to, x[0]);
                _mm256_storeu_ps(to.add(8), x[1]);
            }
        }
        #[inline(always)]
        unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
            // SAFETY: the machine has FMA.
            unsafe {
                [
                    _mm256_fmadd_ps(a[0], b[0], c[0]),
                    _mm256_fmadd_ps(a[1], b[1], c[1]),
                ]
            }
        }
        #[inline(always)]
        unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: the machine has AVX.
            unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: the machine has AVX.
            unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn splat_i32(x: i32) -> Self::I {
            // SAFETY: the machine has AVX2.
            unsafe { [_mm256_set1_epi32(x); 2] }
        }
        #[inline(always)]
        unsafe fn add_i32(a: Self::I, b: Self::I) -> Self::I {
            // SAFETY: the machine has AVX2.
            unsafe { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
        }
        #[inline(always)]
        unsafe fn to_f32(x: Self::I) -> Self::F {
            // SAFETY: the machine has AVX2.
            unsafe { [_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])] }
        }
        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            // SAFETY: a prefetch reads nothing that the program can see, and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
        #[inline(always)]
        unsafe fn load_weights(from: *const u8) -> Self::W {
            // SAFETY: 64 readable bytes.
            unsafe {
                let offset = _mm256_set1_epi8(-128);
                [
                    _mm256_xor_si256(_mm256_loadu_si256(from.cast()), offset),
                    _mm256_xor_si256(_mm256_loadu_si256(from.add(32).cast()), offset),
                ]
            }
        }
        #[inline(always)]
        unsafe fn dot4(acc: Self::I, w: Self::W, x: i32) -> Self::I {
            // SAFETY: the machine has AVX2. |w| <= 127 and |x| <= 127, so that a pair of products is at
            // most 32,258 and the saturating add of maddubs never saturates.
            unsafe {
                let ones = _mm256_set1_epi16(1);
                let x = _mm256_set1_epi32(x);
                let half = |acc, w| {
                    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
                    _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, ones))
                };
                [half(acc[0], w[0]), half(acc[1], w[1])]
            }
        }
    }

    /// AVX-512 with VNNI: one register of sixteen.
    pub struct Avx512Panel;

    // SAFETY: the contract of the trait: called only where AVX-512 F, BW and VNNI exist.
    unsafe impl Panel for Avx512Panel {
        type F = __m512;
        type I = __m512i;
        type W = __m512i;
        const BIASED: bool = true;

        #[inline(always)]
        unsafe fn splat(x: f32) -> Self::F {
            // SAFETY: the machine has AVX-512, by the contract of the trait; so below.
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self::F {
            // SAFETY: sixteen readable values.
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut f32, x: Self::F) {
            // SAFETY: sixteen writable values.
            unsafe { _mm512_storeu_ps(to, x) };
        }
        #[inline(always)]
        unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
            // SAFETY: the machine has AVX-512.
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: the machine has AVX-512.
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
            // SAFETY: the machine has AVX-512.
            unsafe { _mm512_mul_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn splat_i32(x: i32) -> Self::I {
            // SAFETY: the machine has AVX-512.
            unsafe { _mm512_set1_epi32(x) }
        }
        #[inline(always)]
        unsafe fn add_i32(a: Self::I, b: Self::I) -> Self::I {
            // SAFETY: the machine has AVX-512.
            unsafe { _mm512_add_epi32(a, b) }
        }
        #[inline(always)]
        unsafe fn to_f32(x: Self::I) -> Self::F {
            // SAFETY: the machine has AVX-512.
            unsafe { _mm512_cvtepi32_ps(x) }
        }
        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            // SAFETY: a prefetch reads nothing that the program can see, and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
        #[inline(always)]
        unsafe fn load_weights(from: *const u8) -> Self::W {
            // SAFETY: 64 readable bytes.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }
        #[inline(always)]
        unsafe fn dot4(acc: Self::I, w: Self::W, x: i32) -> Self::I {
            // SAFETY: the machine has VNNI. This form does not saturate.
            unsafe { _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x)) }
        }
    }
}
