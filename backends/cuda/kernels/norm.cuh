// The reduction of RMS norms of whole rows.
#include "exact_math.cuh"
#include "lanes.cuh"

// Floats of a row that are read at once: a multiple of 64, so that lanes go on where they were.
#define NORM_TILE 4096

// 1 / sqrt(mean of squares + eps) of a row; the sum is in lanes(64) order with fma. All 256 threads read, the first
// 64 add. `tile` holds the row afterwards if it is no longer than NORM_TILE.
__device__ __forceinline__ float inverse_rms(
    const float* x, int n, float eps, float* tile, float* lanes, bool* finite) {
  int t = threadIdx.x;
  float sum = 0.0f;
  for (int first = 0; first < n; first += NORM_TILE) {
    int len = min(n - first, NORM_TILE);
    if (first > 0) __syncthreads();
    for (int i = t; i < len; i += 256) tile[i] = x[first + i];
    __syncthreads();
    if (t < 64) {
      for (int i = t; i < len; i += 64) sum = __fmaf_rn(tile[i], tile[i], sum);
    }
  }
  float total = sum_lanes(lanes, sum);
  *finite = is_finite(total);
  return rsqrt_of(__fadd_rn(__fdiv_rn(total, __int2float_rn(n)), eps));
}
