// How many int8 products the tensor cores of a device give: measured by a benchmark, and used for nothing else.
#include "common.cuh"

// Sums of a warp that do not wait for each other.
#define PEAK_SUMS 8

// `rounds` times PEAK_SUMS products of 16 x 8 x 32 per warp, of operands that never leave the registers.
extern "C" __global__ void __launch_bounds__(256)
int8_peak(int* out, int rounds) {
  int sums[PEAK_SUMS][4] = {};
  unsigned lane = threadIdx.x & 31;
  unsigned a[4] = {lane, lane * 3, lane * 5, lane * 7}, b[2] = {lane * 11, lane * 13};
  for (int round = 0; round < rounds; round++) {
#pragma unroll
    for (int i = 0; i < PEAK_SUMS; i++) mma_m16n8k32_s8(sums[i], a, b);
  }
  int all = 0;
#pragma unroll
  for (int i = 0; i < PEAK_SUMS; i++) all ^= sums[i][0] ^ sums[i][1] ^ sums[i][2] ^ sums[i][3];
  out[blockIdx.x * 256 + threadIdx.x] = all;
}
KERNEL_EXPORT(int8_peak);
