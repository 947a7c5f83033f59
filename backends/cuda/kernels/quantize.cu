// Quantises the inputs of a linear layer. It must never hide a value that is not finite.
#include "common.cuh"
#include "quantize.cuh"

// Per (row, group of 128): s = amax / 127, q = round_even(x / s) clamped to +-127, and zeros where s = 0.
// x: (m, k). q: (ceil(m / 16), ceil(k / 16), 16, 16). scales: (m, groups). amax is exact in any order.
// Grid: (rows up to a multiple of 16, groups / 8); a warp takes a group.
extern "C" __global__ void __launch_bounds__(256)
quantize(i8* q, float* scales, const float* x, int m, int k) {
  int row = blockIdx.x, group = blockIdx.y * 8 + threadIdx.x / 32;
  if (group * GROUP >= k) return;
  if (row >= m) {
    quantize_nothing(row, group, k, q);
    return;
  }
  int at = group * GROUP + (threadIdx.x & 31) * 4;
  float own[4];
#pragma unroll
  for (int i = 0; i < 4; i++) own[i] = at + i < k ? x[(i64)row * k + at + i] : 0.0f;
  quantize_group(own, row, group, k, q, scales);
}
KERNEL_EXPORT(quantize);
