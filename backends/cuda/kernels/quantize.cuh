// Activations to q8, as backends/numerics/src/quantize.rs has it.
//
// Quantised rows lie in tiles of 16: (ceil(m / 16), ceil(k / 16), 16 rows, 16 bytes), zero where there is no row or
// no input, so that a tensor core's fragment is 128 contiguous bytes. Scales are (m, groups).
#include "exact_math.cuh"

// round_even(x / scale), clamped to +-127.
__device__ __forceinline__ int quantize_value(float x, float scale) {
  float rounded = __fsub_rn(__fadd_rn(__fdiv_rn(x, scale), SHIFT), SHIFT);
  rounded = rounded < 127.0f ? rounded : 127.0f;
  rounded = rounded > -127.0f ? rounded : -127.0f;
  return __float2int_rn(rounded);
}

// Writes four bytes of a row: those of inputs at ..= at + 3, where `at` is a multiple of four. What is padding of the
// last 16 bytes is written, what lies behind them is not.
__device__ __forceinline__ void store_quantized(i8* q, int row, int at, int k, unsigned word) {
  int chunks = (k + 15) / 16, chunk = at / 16;
#ifndef PLANTED_CHUNK_TAIL_WRITE
  // Planted: gittensor-ai-lab/sparkinfer#608: a whole group is written where it is not full.
  if (chunk >= chunks) return;
#endif
  i64 tile = (i64)(row / 16) * chunks + chunk;
  *reinterpret_cast<unsigned*>(q + (tile * 16 + row % 16) * 16 + at % 16) = word;
}

// One warp quantises one group of a row; a lane holds four neighbouring inputs, 0 behind the end. A group that holds
// NaN or infinity gets a scale of NaN, and with it every output of the row is NaN.
__device__ __forceinline__ void quantize_group(
    const float* x, int row, int group, int k, i8* q, float* scales) {
  int lane = threadIdx.x & 31;
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) largest = max(largest, magnitude(x[i]));
  float amax = __uint_as_float((unsigned)__reduce_max_sync(FULL_WARP, (int)largest));
  float scale = is_finite(amax) ? __fdiv_rn(amax, 127.0f) : not_a_number();
  unsigned word = 0;
  if (scale > 0.0f) {
#pragma unroll
    for (int i = 0; i < 4; i++) word |= (quantize_value(x[i], scale) & 0xffu) << (8 * i);
  }
  store_quantized(q, row, group * GROUP + lane * 4, k, word);
  if (lane == 0) scales[(i64)row * ((k + GROUP - 1) / GROUP) + group] = scale;
}

// A row of padding: zeros, and no scales.
__device__ __forceinline__ void quantize_nothing(int row, int group, int k, i8* q) {
  store_quantized(q, row, group * GROUP + (threadIdx.x & 31) * 4, k, 0);
}
