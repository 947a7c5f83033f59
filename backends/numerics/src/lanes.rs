//! Float lanes: one trait, three register widths, the same bits.
//!
//! A kernel generic over [`Lanes`] must never ask for anything but these operations: each has one
//! result under IEEE 754, so the width it runs at cannot show in its output.
//!
//! How to write one: put the body in [`Kernel::run`], marked `#[inline(always)]`, handle tails with
//! the scalar lanes (`impl Lanes for f32`), and call [`dispatch`]. The body is then compiled three
//! times, inside functions that enable the instructions it needs.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;

/// `WIDTH` float32 values on which one operation acts at once.
///
/// Values of the vector types may exist only below [`dispatch`] (or another function that has
/// checked the CPU and enabled the features), which is what makes their intrinsics sound.
pub trait Lanes: Copy {
    /// Number of float32 values; a power of two that divides 64.
    const WIDTH: usize;
    /// One truth value per lane.
    type Mask: Copy;
    /// One 32-bit integer per lane, two's complement and wrapping.
    type Bits: Copy;
    /// The 64 accumulators of the lanes(64) order, `64 / WIDTH` registers of them.
    type Row64: Copy + AsRef<[Self]> + AsMut<[Self]>;

    /// `x` in every lane.
    fn splat(x: f32) -> Self;
    /// Reads the first `WIDTH` values of `from`, which may be unaligned. Panics if it is shorter.
    fn load(from: &[f32]) -> Self;
    /// Writes to the first `WIDTH` places of `to`. Panics if it is shorter.
    fn store(self, to: &mut [f32]);
    /// Reads `WIDTH` bf16 values and widens them exactly. Panics if `from` is shorter.
    fn load_bf16(from: &[u16]) -> Self;
    /// Reads `WIDTH` int8 values and converts them exactly. Panics if `from` is shorter.
    fn load_i8(from: &[i8]) -> Self;
    /// Writes lanes that hold integers in -128..=127 as int8. Panics if `to` is shorter.
    fn store_i8(self, to: &mut [i8]);
    /// `self` in each of the 64 accumulators.
    fn row64(self) -> Self::Row64;

    /// `self + b`.
    fn add(self, b: Self) -> Self;
    /// `self - b`.
    fn sub(self, b: Self) -> Self;
    /// `self * b`.
    fn mul(self, b: Self) -> Self;
    /// `self / b`, correctly rounded.
    fn div(self, b: Self) -> Self;
    /// The square root, correctly rounded.
    fn sqrt(self) -> Self;
    /// `self * b + c` with one rounding.
    fn fma(self, b: Self, c: Self) -> Self;
    /// `if self < b { self } else { b }`: `b` where either is NaN or both are zeros.
    fn min(self, b: Self) -> Self;
    /// `if self > b { self } else { b }`: `b` where either is NaN or both are zeros.
    fn max(self, b: Self) -> Self;
    /// Flips the sign bit, of NaN too.
    #[inline(always)]
    fn neg(self) -> Self {
        Self::from_bits(Self::bits_xor(self.to_bits(), Self::bits_splat(i32::MIN)))
    }
    /// Clears the sign bit, of NaN too.
    #[inline(always)]
    fn abs(self) -> Self {
        Self::from_bits(Self::bits_and(self.to_bits(), Self::bits_splat(i32::MAX)))
    }
    /// The magnitude of `self` with the sign bit of `sign`.
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        let s = Self::bits_and(sign.to_bits(), Self::bits_splat(i32::MIN));
        Self::from_bits(Self::bits_or(self.abs().to_bits(), s))
    }
    /// `self * 2^n` with one rounding, for integral `n` in -160..=160 and `0.5 <= self < 2`.
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        // The integer sits in the low bits of n + 1.5 * 2^23. Two exact powers of two reach
        // the subnormals; the first product is exact, so only the second rounds.
        let shift = Self::splat(crate::coefficients::SHIFT);
        let low = Self::bits_splat(crate::coefficients::SHIFT.to_bits() as i32);
        let n = Self::bits_sub(n.add(shift).to_bits(), low);
        let a = Self::bits_sra::<1>(n);
        let b = Self::bits_sub(n, a);
        self.mul(Self::pow2i(a)).mul(Self::pow2i(b))
    }
    /// `2^n` for `n` in -126..=127.
    #[inline(always)]
    fn pow2i(n: Self::Bits) -> Self {
        Self::from_bits(Self::bits_shl::<23>(Self::bits_add(
            n,
            Self::bits_splat(127),
        )))
    }

    /// `self < b`, false where either is NaN.
    fn lt(self, b: Self) -> Self::Mask;
    /// `self <= b`, false where either is NaN.
    fn le(self, b: Self) -> Self::Mask;
    /// `self > b`, false where either is NaN.
    #[inline(always)]
    fn gt(self, b: Self) -> Self::Mask {
        b.lt(self)
    }
    /// `self >= b`, false where either is NaN.
    #[inline(always)]
    fn ge(self, b: Self) -> Self::Mask {
        b.le(self)
    }
    /// `self == b`, false where either is NaN.
    fn equal(self, b: Self) -> Self::Mask;
    /// `yes` where the mask holds, else `no`.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// Whether the mask holds in any lane.
    fn any(mask: Self::Mask) -> bool;

    /// The IEEE 754 encoding.
    fn to_bits(self) -> Self::Bits;
    /// The float with that encoding.
    fn from_bits(bits: Self::Bits) -> Self;
    /// Exact conversion of integers of magnitude up to 2^24 (larger ones round to even).
    fn from_int(int: Self::Bits) -> Self;
    /// `n` in every lane.
    fn bits_splat(n: i32) -> Self::Bits;
    /// Wrapping sum.
    fn bits_add(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// Wrapping difference.
    fn bits_sub(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// Bitwise and.
    fn bits_and(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// Bitwise or.
    fn bits_or(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// Bitwise exclusive or.
    fn bits_xor(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// The larger as signed integers.
    fn bits_max(a: Self::Bits, b: Self::Bits) -> Self::Bits;
    /// Shift left by `N` bits.
    fn bits_shl<const N: u32>(a: Self::Bits) -> Self::Bits;
    /// Arithmetic shift right by `N` bits.
    fn bits_sra<const N: u32>(a: Self::Bits) -> Self::Bits;
    /// The largest lane as a signed integer.
    fn bits_reduce_max(a: Self::Bits) -> i32;
}

/// The scalar reference: the definition of every kernel. `mul_add` is correctly rounded with or
/// without an fma instruction.
impl Lanes for f32 {
    const WIDTH: usize = 1;
    type Mask = bool;
    type Bits = i32;
    type Row64 = [f32; 64];

    #[inline(always)]
    fn splat(x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn load(from: &[f32]) -> f32 {
        from[0]
    }
    #[inline(always)]
    fn store(self, to: &mut [f32]) {
        to[0] = self;
    }
    #[inline(always)]
    fn load_bf16(from: &[u16]) -> f32 {
        crate::narrow::bf16_to_f32(from[0])
    }
    #[inline(always)]
    fn load_i8(from: &[i8]) -> f32 {
        f32::from(from[0])
    }
    #[inline(always)]
    fn store_i8(self, to: &mut [i8]) {
        to[0] = self as i8;
    }
    #[inline(always)]
    fn row64(self) -> [f32; 64] {
        [self; 64]
    }
    #[inline(always)]
    fn add(self, b: f32) -> f32 {
        self + b
    }
    #[inline(always)]
    fn sub(self, b: f32) -> f32 {
        self - b
    }
    #[inline(always)]
    fn mul(self, b: f32) -> f32 {
        self * b
    }
    #[inline(always)]
    fn div(self, b: f32) -> f32 {
        self / b
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn fma(self, b: f32, c: f32) -> f32 {
        self.mul_add(b, c)
    }
    #[inline(always)]
    fn min(self, b: f32) -> f32 {
        if self < b { self } else { b }
    }
    #[inline(always)]
    fn max(self, b: f32) -> f32 {
        if self > b { self } else { b }
    }
    #[inline(always)]
    fn lt(self, b: f32) -> bool {
        self < b
    }
    #[inline(always)]
    fn le(self, b: f32) -> bool {
        self <= b
    }
    #[inline(always)]
    fn equal(self, b: f32) -> bool {
        self == b
    }
    #[inline(always)]
    fn select(mask: bool, yes: f32, no: f32) -> f32 {
        if mask { yes } else { no }
    }
    #[inline(always)]
    fn any(mask: bool) -> bool {
        mask
    }
    #[inline(always)]
    fn to_bits(self) -> i32 {
        f32::to_bits(self) as i32
    }
    #[inline(always)]
    fn from_bits(bits: i32) -> f32 {
        f32::from_bits(bits as u32)
    }
    #[inline(always)]
    fn from_int(int: i32) -> f32 {
        int as f32
    }
    #[inline(always)]
    fn bits_splat(n: i32) -> i32 {
        n
    }
    #[inline(always)]
    fn bits_add(a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn bits_sub(a: i32, b: i32) -> i32 {
        a.wrapping_sub(b)
    }
    #[inline(always)]
    fn bits_and(a: i32, b: i32) -> i32 {
        a & b
    }
    #[inline(always)]
    fn bits_or(a: i32, b: i32) -> i32 {
        a | b
    }
    #[inline(always)]
    fn bits_xor(a: i32, b: i32) -> i32 {
        a ^ b
    }
    #[inline(always)]
    fn bits_max(a: i32, b: i32) -> i32 {
        Ord::max(a, b)
    }
    #[inline(always)]
    fn bits_shl<const N: u32>(a: i32) -> i32 {
        a << N
    }
    #[inline(always)]
    fn bits_sra<const N: u32>(a: i32) -> i32 {
        a >> N
    }
    #[inline(always)]
    fn bits_reduce_max(a: i32) -> i32 {
        a
    }
}

/// A register width that kernels can be run at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// One lane, any CPU.
    Scalar,
    /// 8 lanes: AVX2, FMA and F16C.
    Avx2,
    /// 16 lanes: AVX-512 F, BW, DQ and VL.
    Avx512,
}

impl Level {
    /// The widest level of this CPU.
    #[inline]
    pub fn detect() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                return Level::Avx512;
            }
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c")
            {
                return Level::Avx2;
            }
        }
        Level::Scalar
    }

    /// Every level of this CPU, narrowest first.
    pub fn available() -> Vec<Level> {
        let all = [Level::Scalar, Level::Avx2, Level::Avx512];
        all.into_iter().filter(|l| *l <= Level::detect()).collect()
    }
}

/// A computation written once over [`Lanes`]; its inputs and outputs are its fields.
pub trait Kernel {
    /// What one run returns.
    type Output;
    /// The body. Must be `#[inline(always)]`, with everything generic that it calls.
    fn run<L: Lanes>(self) -> Self::Output;
}

/// Runs a kernel at the widest level of this CPU.
#[inline]
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    dispatch_at(Level::detect(), kernel)
}

/// Runs a kernel at a level. Panics if this CPU doesn't have it.
#[inline]
pub fn dispatch_at<K: Kernel>(level: Level, kernel: K) -> K::Output {
    assert!(level <= Level::detect(), "this CPU has no {level:?}");
    match level {
        Level::Scalar => kernel.run::<f32>(),
        // SAFETY: the assertion above has found the features of this level on this CPU.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2::run(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512::run(kernel) },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 | Level::Avx512 => unreachable!("detected on x86-64 only"),
    }
}
