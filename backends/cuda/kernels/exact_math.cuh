// Elementary functions: the operations of backends/numerics/src/elementary.rs in the same order, so that the
// same bits come out. Each operation is correctly rounded. Nothing here may call a function of the device's
// own library, which rounds as it likes.
#include "coefficients.cuh"
#define MATH __device__ __forceinline__

MATH float neg(float x) { return __uint_as_float(__float_as_uint(x) ^ 0x80000000u); }
MATH float abs_of(float x) { return __uint_as_float(__float_as_uint(x) & 0x7fffffffu); }

// 2^n for n in -126 ..= 127.
MATH float pow2i(int n) { return __uint_as_float((unsigned)(n + 127) << 23); }

// x * 2^n for an integral n in -160 ..= 160 and x in 0.5 .. 2: two exact powers reach the subnormals.
MATH float scale_by_pow2(float x, float n) {
  int whole = (int)(__float_as_uint(__fadd_rn(n, SHIFT)) - __float_as_uint(SHIFT));
  int half = whole >> 1;
  return __fmul_rn(__fmul_rn(x, pow2i(half)), pow2i(whole - half));
}

// Horner's rule with fma, highest power first.
template <int N>
MATH float polynomial(const float (&coefficients)[N], float x) {
  float sum = coefficients[0];
#pragma unroll
  for (int i = 1; i < N; i++) sum = __fmaf_rn(sum, x, coefficients[i]);
  return sum;
}

// e^x. NaN stays NaN: both limits stand on the left of their comparison.
MATH float exp_of(float x) {
  const float coefficients[] = {EXP_COEFFICIENTS};
  x = EXP_ARG_MAX < x ? EXP_ARG_MAX : x;
  x = EXP_ARG_MIN > x ? EXP_ARG_MIN : x;
  float n = __fsub_rn(__fmaf_rn(x, LOG2_E, SHIFT), SHIFT);
  float high = __fmaf_rn(n, -LN2_HI, x);
  float low = __fmul_rn(n, -LN2_LO);
  float r = __fadd_rn(high, low);
  float tail = __fmaf_rn(__fmul_rn(r, r), polynomial(coefficients, r), low);
  return scale_by_pow2(__fadd_rn(1.0f, __fadd_rn(high, tail)), n);
}

// Splits a positive normal x into 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
MATH void split(float x, float* e, float* f) {
  int exponent = (int)(__float_as_uint(x) - SQRT_HALF_BITS) >> 23;
  *e = __int2float_rn(exponent);
  *f = __fsub_rn(__uint_as_float(__float_as_uint(x) - ((unsigned)exponent << 23)), 1.0f);
}

// e * ln 2 + log(1 + f) + extra, for an extra far below an ulp of the rest or with f = e = 0.
MATH float join(float e, float f, float extra) {
  const float coefficients[] = {LOG_COEFFICIENTS};
  float head = __fmul_rn(e, LN2_HI);
  float high = __fadd_rn(head, f);
  float rest = __fsub_rn(f, __fsub_rn(high, head));
  float low = __fmaf_rn(e, LN2_LO, extra);
  float tail = __fmaf_rn(__fmul_rn(f, f), polynomial(coefficients, f), low);
  return __fadd_rn(high, __fadd_rn(rest, tail));
}

// y, but for the arguments where a logarithm is not finite, and NaN.
MATH float log_edges(float x, float y) {
  y = x > 0.0f ? y : not_a_number();
  y = x == 0.0f ? negative_infinity() : y;
  return x == __uint_as_float(0x7f800000u) ? x : y;
}

MATH float log_of(float x) {
  bool small = x < __uint_as_float(0x00800000u);
  float e, f;
  split(small ? __fmul_rn(x, 8388608.0f) : x, &e, &f);
  e = __fsub_rn(e, small ? 23.0f : 0.0f);
  return log_edges(x, join(e, f, 0.0f));
}

// log(1 + x) for x >= -1.
MATH float log1p_of(float x) {
  float s = __fadd_rn(1.0f, x);
  float x_part = __fsub_rn(s, 1.0f);
  float lost = __fadd_rn(__fsub_rn(1.0f, __fsub_rn(s, x_part)), __fsub_rn(x, x_part));
  float e, f;
  split(s, &e, &f);
  float y = join(e, f, __fdiv_rn(lost, s));
  y = abs_of(x) < 1.0e-30f ? x : y;
  return log_edges(s, y);
}

MATH float sigmoid(float x) {
  float e = exp_of(neg(abs_of(x)));
  return __fdiv_rn(x >= 0.0f ? 1.0f : e, __fadd_rn(1.0f, e));
}

MATH float silu(float x) {
  float e = exp_of(neg(abs_of(x)));
  return __fdiv_rn(x >= 0.0f ? x : __fmul_rn(x, e), __fadd_rn(1.0f, e));
}

MATH float softplus(float x) {
  return __fadd_rn(x > 0.0f ? x : 0.0f, log1p_of(exp_of(neg(abs_of(x)))));
}

// 1 / sqrt(x), two roundings.
MATH float rsqrt_of(float x) { return __fdiv_rn(1.0f, __fsqrt_rn(x)); }
