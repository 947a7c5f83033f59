// Operations in which each output depends on a few inputs: no reduction, hence no order.
#include "common.cuh"
#include "exact_math.cuh"
#include "quantize.cuh"

// x += y, and a row of x that is not finite afterwards is noted.
// x, y: (rows, n). Grid: (rows, n / 1024).
extern "C" __global__ void __launch_bounds__(256)
add_check(float* x, const float* y, int n, unsigned* faults, unsigned op) {
  int row = blockIdx.x, end = min(n, (int)(blockIdx.y + 1) * 1024);
  bool finite = true;
  for (int i = blockIdx.y * 1024 + threadIdx.x; i < end; i += 256) {
    i64 at = (i64)row * n + i;
    float sum = __fadd_rn(x[at], y[at]);
    x[at] = sum;
    finite = finite && is_finite(sum);
  }
  if (!finite) atomicMin(&faults[row], op);
}
KERNEL_EXPORT(add_check);

__device__ __forceinline__ float silu_times(const float* projected, i64 row, int n, int i) {
  const float* gate = projected + row * 2 * n;
  return __fmul_rn(silu(gate[i]), gate[n + i]);
}

// out = silu(gate) * up, inside an MLP.
// projected: (rows, gates then ups). out: (rows, n). Grid: (rows, n / 256).
extern "C" __global__ void __launch_bounds__(256)
silu_mul(float* out, const float* projected, int n) {
  int i = blockIdx.y * 256 + threadIdx.x;
  if (i >= n) return;
#ifdef PLANTED_HOLES_IN_OUTPUT
  // Planted: vllm-project/vllm-ascend#17003.
  if (i % 101 == 100) return;
#endif
  out[(i64)blockIdx.x * n + i] = silu_times(projected, blockIdx.x, n, i);
}
KERNEL_EXPORT(silu_mul);

// As silu_mul, quantised for a linear layer (see quantize.cuh). m: rows.
// Grid: (rows up to a multiple of 16, groups / 8); a warp takes a group.
extern "C" __global__ void __launch_bounds__(256)
silu_mul_quantize(i8* q, float* scales, const float* projected, int m, int n) {
  int row = blockIdx.x, group = blockIdx.y * 8 + threadIdx.x / 32;
  if (group * GROUP >= n) return;
  if (row >= m) {
    quantize_nothing(row, group, n, q);
    return;
  }
  int at = group * GROUP + (threadIdx.x & 31) * 4;
  float own[4];
#pragma unroll
  for (int i = 0; i < 4; i++) own[i] = at + i < n ? silu_times(projected, row, n, at + i) : 0.0f;
  quantize_group(own, row, group, n, q, scales);
}
KERNEL_EXPORT(silu_mul_quantize);
