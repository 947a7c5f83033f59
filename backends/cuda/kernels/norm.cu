// RMS norms of whole rows, alone or with the quantisation of their outcome.
// Each notes a row whose sum of squares overflows: such a row would otherwise become zeros and go unnoticed.
#include "common.cuh"
#include "norm.cuh"
#include "quantize.cuh"

// out[i] = norm(x[rows[i]]), or norm(x[i]) without `rows`; zeros where there is no row.
// norm(x) = x * (1 / sqrt(mean of squares + eps)) * weight, left to right.
// out: (rows, n). x: (any, n). weight: (n). A block takes a row.
extern "C" __global__ void __launch_bounds__(256)
rms_norm(float* out, const float* x, const unsigned* rows, const float* weight, float eps, int n,
         unsigned* faults, unsigned op) {
  __shared__ float tile[NORM_TILE];
  __shared__ float lanes[64];
  float* to = out + (i64)blockIdx.x * n;
  unsigned row = rows ? rows[blockIdx.x] : blockIdx.x;
  if (row == NO_ID) {
    for (int i = threadIdx.x; i < n; i += 256) to[i] = 0.0f;
    return;
  }
  const float* from = x + (i64)row * n;
  bool finite;
  float inverse = inverse_rms(from, n, eps, tile, lanes, &finite);
  if (n <= NORM_TILE) from = tile;
  for (int i = threadIdx.x; i < n; i += 256) {
    to[i] = __fmul_rn(__fmul_rn(from[i], inverse), weight[i]);
  }
  if (threadIdx.x == 0 && !finite && faults) atomicMin(&faults[row], op);
}
KERNEL_EXPORT(rms_norm);

// As rms_norm, with its outcome quantised for a linear layer (see quantize.cuh), and written to `out` as well if there
// is one. m: rows; the grid has as many blocks, up to a multiple of 16. A warp quantises a group.
extern "C" __global__ void __launch_bounds__(256)
rms_norm_quantize(i8* q, float* scales, float* out, const float* x, const unsigned* rows,
                  const float* weight, float eps, int m, int n, unsigned* faults, unsigned op) {
  __shared__ float tile[NORM_TILE];
  __shared__ float lanes[64];
  int warp = threadIdx.x / 32, lane = threadIdx.x & 31, groups = (n + GROUP - 1) / GROUP;
  if ((int)blockIdx.x >= m) {
    for (int group = warp; group < groups; group += 8) {
      quantize_nothing(blockIdx.x, group, n, q);
    }
    return;
  }
  unsigned row = rows ? rows[blockIdx.x] : blockIdx.x;
  bool finite = true;
  float inverse = 0.0f;
  const float* from = nullptr;
  if (row != NO_ID) {
    from = x + (i64)row * n;
    inverse = inverse_rms(from, n, eps, tile, lanes, &finite);
    if (n <= NORM_TILE) from = tile;
  }
  for (int group = warp; group < groups; group += 8) {
    int at = group * GROUP + lane * 4;
    float own[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      bool is_input = at + i < n;
      float value = is_input && from ? from[at + i] : 0.0f;
      own[i] = is_input && from ? __fmul_rn(__fmul_rn(value, inverse), weight[at + i]) : 0.0f;
      if (out && is_input) out[(i64)blockIdx.x * n + at + i] = own[i];
    }
    quantize_group(own, blockIdx.x, group, n, q, scales);
  }
  if (threadIdx.x == 0 && !finite && faults) atomicMin(&faults[row], op);
}
KERNEL_EXPORT(rms_norm_quantize);
