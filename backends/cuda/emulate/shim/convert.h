// Conversions between number formats, as the PTX `cvt` instruction defines them: rounded as named,
// saturating towards integers. A plain cast of a float outside an integer's range is undefined in
// C++ and can't be caught here; the address sanitizer's build reports it.
#pragma once
#include "arithmetic.h"

namespace emulate {

// `rounded` is already a whole number. Out of range saturates; NaN gives zero, except where a
// 64-bit format is on either side: there it gives the top bit alone.
template <class Int, class Float>
EMULATE_EXACT Int saturate(Float rounded) {
  constexpr bool is_signed = std::is_signed<Int>::value;
  constexpr int bits = 8 * (int)sizeof(Int);
  constexpr Int top = (Int)((unsigned long long)1 << (bits - 1));
  constexpr Int lowest = is_signed ? top : 0;
  constexpr Int highest = is_signed ? (Int)~top : (Int)~(Int)0;
  // Exact powers of two: the first value above, and the lowest one inside.
  const Float above = (Float)((unsigned long long)1 << (bits - 1)) * (is_signed ? 1 : 2);
  const Float below = is_signed ? -above : (Float)0;
  if (rounded != rounded) return sizeof(Int) == 8 || sizeof(Float) == 8 ? top : 0;
  if (rounded >= above) return highest;
  if (rounded < below) return lowest;
  return (Int)rounded;
}

}  // namespace emulate

#define EMULATE_TO_INT(Int, suffix)                                                            \
  EMULATE_EXACT Int __float2##suffix##_rn(float f) {                                           \
    return emulate::saturate<Int>(__builtin_rintf(f));                                         \
  }                                                                                            \
  EMULATE_EXACT Int __float2##suffix##_rz(float f) {                                           \
    return emulate::saturate<Int>(__builtin_truncf(f));                                        \
  }                                                                                            \
  EMULATE_EXACT Int __float2##suffix##_rd(float f) {                                           \
    return emulate::saturate<Int>(__builtin_floorf(f));                                        \
  }                                                                                            \
  EMULATE_EXACT Int __float2##suffix##_ru(float f) {                                           \
    return emulate::saturate<Int>(__builtin_ceilf(f));                                         \
  }                                                                                            \
  EMULATE_EXACT Int __double2##suffix##_rn(double d) {                                         \
    return emulate::saturate<Int>(__builtin_rint(d));                                          \
  }                                                                                            \
  EMULATE_EXACT Int __double2##suffix##_rz(double d) {                                         \
    return emulate::saturate<Int>(__builtin_trunc(d));                                         \
  }                                                                                            \
  EMULATE_EXACT Int __double2##suffix##_rd(double d) {                                         \
    return emulate::saturate<Int>(__builtin_floor(d));                                         \
  }                                                                                            \
  EMULATE_EXACT Int __double2##suffix##_ru(double d) {                                         \
    return emulate::saturate<Int>(__builtin_ceil(d));                                          \
  }                                                                                            \
  EMULATE_EXACT float __##suffix##2float_rn(Int i) { return (float)i; }
EMULATE_TO_INT(int, int)
EMULATE_TO_INT(unsigned, uint)
EMULATE_TO_INT(long long, ll)
EMULATE_TO_INT(unsigned long long, ull)

EMULATE_EXACT double __int2double_rn(int i) { return i; }
EMULATE_EXACT double __uint2double_rn(unsigned i) { return i; }
EMULATE_EXACT double __ll2double_rn(long long i) { return (double)i; }
EMULATE_EXACT double __ull2double_rn(unsigned long long i) { return (double)i; }
EMULATE_EXACT float __double2float_rn(double d) { return (float)d; }

// bfloat16: the upper half of a float, rounded to even. The device's NaN is always 0x7fff.
EMULATE_EXACT unsigned short f32_to_bf16_bits(float f) {
  unsigned u = __float_as_uint(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
EMULATE_EXACT float bf16_bits_to_f32(unsigned short b) {
  return __uint_as_float((unsigned)b << 16);
}

// half: every one of its values is a float, so this direction is exact. NaN payloads are kept here
// and not on the device: compare NaN as a class.
EMULATE_EXACT float f16_bits_to_f32(unsigned short h) {
  unsigned sign = (unsigned)(h & 0x8000) << 16;
  unsigned exponent = h >> 10 & 31;
  unsigned fraction = h & 0x3ff;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  if (exponent) return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
  float magnitude = (float)fraction * __uint_as_float(0x33800000u);  // 2^-24
  return __uint_as_float(sign | __float_as_uint(magnitude));
}
EMULATE_EXACT unsigned short f32_to_f16_bits(float f) {
  unsigned u = __float_as_uint(f), magnitude = u & 0x7fffffffu;
  unsigned short sign = (unsigned short)(u >> 16 & 0x8000);
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {                       // subnormal: the unit is 2^-24
    float scaled = __uint_as_float(magnitude) * __uint_as_float(0x4b800000u);
    return sign | (unsigned short)__float2int_rn(scaled);
  }
  return sign | (unsigned short)((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

// The names of cuda_bf16.h and cuda_fp16.h, for kernels that include them on the device.
struct __nv_bfloat16 {
  unsigned short x;
};
struct __half {
  unsigned short x;
};
typedef __nv_bfloat16 nv_bfloat16;
typedef __half half;
EMULATE_EXACT float __bfloat162float(__nv_bfloat16 b) { return bf16_bits_to_f32(b.x); }
EMULATE_EXACT __nv_bfloat16 __float2bfloat16_rn(float f) { return {f32_to_bf16_bits(f)}; }
EMULATE_EXACT __nv_bfloat16 __float2bfloat16(float f) { return {f32_to_bf16_bits(f)}; }
EMULATE_EXACT unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) { return b.x; }
EMULATE_EXACT __nv_bfloat16 __ushort_as_bfloat16(unsigned short u) { return {u}; }
EMULATE_EXACT float __half2float(__half h) { return f16_bits_to_f32(h.x); }
EMULATE_EXACT __half __float2half_rn(float f) { return {f32_to_f16_bits(f)}; }
EMULATE_EXACT __half __float2half(float f) { return {f32_to_f16_bits(f)}; }
EMULATE_EXACT unsigned short __half_as_ushort(__half h) { return h.x; }
EMULATE_EXACT __half __ushort_as_half(unsigned short u) { return {u}; }
