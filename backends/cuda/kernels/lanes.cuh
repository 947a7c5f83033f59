// Sums in lanes(64) order: lane l has added up indices l, l + 64, l + 128, ...; then lanes are halved, l += l + 32,
// l += l + 16 and so on. No other order of a sum belongs here.
#include "common.cuh"

// Halves the lanes within the first warp, which holds lanes l and l + 32 in `low` and `high`. Lane 0 gets the sum.
__device__ __forceinline__ float halve_lanes(float low, float high) {
  float sum = __fadd_rn(low, high);
#pragma unroll
  for (int half = 16; half > 0; half >>= 1) {
    sum = __fadd_rn(sum, __shfl_down_sync(FULL_WARP, sum, half));
  }
  return sum;
}

// The sum of what the first 64 threads of a block bring; every thread calls this and gets it. `lanes` holds 64 floats
// of shared memory, which must not be written again before the next barrier.
__device__ __forceinline__ float sum_lanes(float* lanes, float partial) {
  int t = threadIdx.x;
  if (t < 64) lanes[t] = partial;
#ifndef PLANTED_NORM_BARRIER
  __syncthreads();
#endif
  if (t < 32) {
    float sum = halve_lanes(lanes[t], lanes[t + 32]);
    if (t == 0) lanes[0] = sum;
  }
  __syncthreads();
  return lanes[0];
}
