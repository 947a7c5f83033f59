// Arithmetic whose result is exactly defined, so that host and device agree in every bit: single
// IEEE roundings, integer and bit operations. Whatever is an approximation on the device is not
// here, and poison.h says so.
#pragma once
#include "language.h"

EMULATE_EXACT float __uint_as_float(unsigned u) {
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
EMULATE_EXACT unsigned __float_as_uint(float f) {
  unsigned u;
  __builtin_memcpy(&u, &f, 4);
  return u;
}
EMULATE_EXACT float __int_as_float(int i) { return __uint_as_float((unsigned)i); }
EMULATE_EXACT int __float_as_int(float f) { return (int)__float_as_uint(f); }
EMULATE_EXACT long long __double_as_longlong(double d) {
  long long i;
  __builtin_memcpy(&i, &d, 8);
  return i;
}
EMULATE_EXACT double __longlong_as_double(long long i) {
  double d;
  __builtin_memcpy(&d, &i, 8);
  return d;
}

EMULATE_EXACT float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EMULATE_EXACT float __fadd_rn(float a, float b) { return a + b; }
EMULATE_EXACT float __fsub_rn(float a, float b) { return a - b; }
EMULATE_EXACT float __fmul_rn(float a, float b) { return a * b; }
EMULATE_EXACT float __fdiv_rn(float a, float b) { return a / b; }
EMULATE_EXACT float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
EMULATE_EXACT float __frcp_rn(float a) { return 1.0f / a; }
EMULATE_EXACT double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
EMULATE_EXACT double __dadd_rn(double a, double b) { return a + b; }
EMULATE_EXACT double __dsub_rn(double a, double b) { return a - b; }
EMULATE_EXACT double __dmul_rn(double a, double b) { return a * b; }
EMULATE_EXACT double __ddiv_rn(double a, double b) { return a / b; }
EMULATE_EXACT double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
EMULATE_EXACT double __drcp_rn(double a) { return 1.0 / a; }

EMULATE_EXACT float sqrtf(float a) { return __builtin_sqrtf(a); }
EMULATE_EXACT float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
EMULATE_EXACT float fabsf(float a) { return __builtin_fabsf(a); }
EMULATE_EXACT float floorf(float a) { return __builtin_floorf(a); }
EMULATE_EXACT float ceilf(float a) { return __builtin_ceilf(a); }
EMULATE_EXACT float truncf(float a) { return __builtin_truncf(a); }
EMULATE_EXACT float rintf(float a) { return __builtin_rintf(a); }
EMULATE_EXACT float copysignf(float a, float b) { return __builtin_copysignf(a, b); }
EMULATE_EXACT double sqrt(double a) { return __builtin_sqrt(a); }
EMULATE_EXACT double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
EMULATE_EXACT double fabs(double a) { return __builtin_fabs(a); }
EMULATE_EXACT double floor(double a) { return __builtin_floor(a); }
EMULATE_EXACT double ceil(double a) { return __builtin_ceil(a); }
EMULATE_EXACT double trunc(double a) { return __builtin_trunc(a); }
EMULATE_EXACT double rint(double a) { return __builtin_rint(a); }
EMULATE_EXACT bool isnan(float a) { return a != a; }
EMULATE_EXACT bool isnan(double a) { return a != a; }
EMULATE_EXACT bool isinf(float a) { return __builtin_isinf(a) != 0; }
EMULATE_EXACT bool isinf(double a) { return __builtin_isinf(a) != 0; }
EMULATE_EXACT bool isfinite(float a) { return __builtin_isfinite(a); }
EMULATE_EXACT bool isfinite(double a) { return __builtin_isfinite(a); }

EMULATE_EXACT int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
EMULATE_EXACT int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
EMULATE_EXACT int __popc(unsigned x) { return __builtin_popcount(x); }
EMULATE_EXACT int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
EMULATE_EXACT int __ffs(int x) { return __builtin_ffs(x); }
EMULATE_EXACT int __ffsll(long long x) { return __builtin_ffsll(x); }
EMULATE_EXACT unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; i++) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}
EMULATE_EXACT unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}

EMULATE_EXACT unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)(((unsigned long long)a * b) >> 32);
}
EMULATE_EXACT int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
EMULATE_EXACT unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
EMULATE_EXACT long long __mul64hi(long long a, long long b) {
  return (long long)(((__int128)a * b) >> 64);
}
EMULATE_EXACT unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  unsigned long long both = (unsigned long long)high << 32 | low;
  return (unsigned)(both << (shift & 31) >> 32);
}
EMULATE_EXACT unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  unsigned long long both = (unsigned long long)high << 32 | low;
  return (unsigned)(both >> (shift & 31));
}
// Each nibble of `selector` picks a byte of the eight; its top bit asks for the byte's sign.
EMULATE_EXACT unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    unsigned pick = selector >> (4 * i) & 15;
    unsigned byte = (unsigned)(bytes >> (8 * (pick & 7))) & 255;
    if (pick & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// Sums wrap, as on the device: hence unsigned.
EMULATE_EXACT int __dp4a(int a, int b, int c) {
  unsigned sum = (unsigned)c;
  for (int i = 0; i < 4; i++)
    sum += (unsigned)((int)(int8_t)(a >> (8 * i)) * (int)(int8_t)(b >> (8 * i)));
  return (int)sum;
}
EMULATE_EXACT unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; i++) c += (a >> (8 * i) & 255) * (b >> (8 * i) & 255);
  return c;
}

// Integers only: which of two floats is the smaller is left open by the device for NaN and zeros.
#define EMULATE_MIN_MAX(T)                                   \
  EMULATE_EXACT T min(T a, T b) { return b < a ? b : a; }    \
  EMULATE_EXACT T max(T a, T b) { return a < b ? b : a; }
EMULATE_MIN_MAX(int)
EMULATE_MIN_MAX(unsigned)
EMULATE_MIN_MAX(long)
EMULATE_MIN_MAX(unsigned long)
EMULATE_MIN_MAX(long long)
EMULATE_MIN_MAX(unsigned long long)
