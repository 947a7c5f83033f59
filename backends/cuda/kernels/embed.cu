// From what a step is told to the first hidden states.
#include "common.cuh"

// f16 to float32, exactly: read with a float32 exponent the value is 2^-112 of itself, subnormals included.
__device__ __forceinline__ float widen_f16(u16 x) {
  unsigned sign = (unsigned)(x & 0x8000) << 16, rest = (unsigned)(x & 0x7fff) << 13;
  float value = rest >= 0x0f800000u ? __uint_as_float(rest | 0x7f800000u)
                                    : __fmul_rn(__uint_as_float(rest), 0x1p+112f);
  return __uint_as_float(__float_as_uint(value) | sign);
}

// tokens[row] = known[row], or what an earlier step drew where `refs` names a draw: drawn[refs[row]]. A draw that was
// never made stands for token 0. One thread a row.
extern "C" __global__ void __launch_bounds__(128)
resolve_tokens(unsigned* tokens, const unsigned* known, const unsigned* refs, const unsigned* drawn,
               int num_rows) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row >= num_rows) return;
  unsigned token = known[row];
  if (refs[row] != NO_ID) {
    token = drawn[refs[row]];
    if (token == NO_ID) token = 0;
  }
  tokens[row] = token;
}
KERNEL_EXPORT(resolve_tokens);

// out[row] = table[tokens[row]], widened exactly; zeros for padding.
// out: (rows, n). table: (vocabulary, n), of f32 (kind 0), bf16 (1) or f16 (2). Grid: (rows, n / 1024).
extern "C" __global__ void __launch_bounds__(256)
embed(float* out, const unsigned char* table, const unsigned* tokens, int kind, int n) {
  int row = blockIdx.x;
  unsigned token = tokens[row];
  int end = min(n, (int)(blockIdx.y + 1) * 1024);
  for (int i = blockIdx.y * 1024 + threadIdx.x; i < end; i += 256) {
    i64 at = (i64)token * n + i;
    float value = 0.0f;
    if (token == NO_ID) {
      value = 0.0f;
    } else if (kind == 0) {
      value = reinterpret_cast<const float*>(table)[at];
    } else if (kind == 1) {
      value = __uint_as_float((unsigned)reinterpret_cast<const u16*>(table)[at] << 16);
    } else {
      value = widen_f16(reinterpret_cast<const u16*>(table)[at]);
    }
    out[(i64)row * n + i] = value;
  }
}
KERNEL_EXPORT(embed);
