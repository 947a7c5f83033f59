// The digest of each row of logits, and whether all of it is finite.
#include "common.cuh"
#include "coefficients.cuh"

// The finaliser of SplitMix64.
__device__ __forceinline__ u64 mix64(u64 x) {
  x = (x ^ (x >> 30)) * MIX_1;
  x = (x ^ (x >> 27)) * MIX_2;
  return x ^ (x >> 31);
}

// digests[i] += sum over j of mix64(bits(logits[i][j]) ^ j * INDEX_FACTOR), wrapping, hence in any order. The host sets
// digests to 0 before. rows[i]: the row of the step that logits i belong to, where faults are noted; NO_ID for padding,
// which has no digest. logits: (scored, n). Grid: (scored, n / 4096), blocks of 256.
extern "C" __global__ void __launch_bounds__(256)
logits_digest(u64* digests, const float* logits, const unsigned* rows, int n, unsigned* faults,
              unsigned op) {
  __shared__ u64 parts[8];
  unsigned row = rows[blockIdx.x];
  if (row == NO_ID) return;
  const float* own = logits + (i64)blockIdx.x * n;
  int end = min(n, (int)(blockIdx.y + 1) * 4096);
  u64 sum = 0;
  bool finite = true;
  for (int i = blockIdx.y * 4096 + threadIdx.x; i < end; i += 256) {
    sum += mix64((u64)__float_as_uint(own[i]) ^ ((u64)i * INDEX_FACTOR));
    finite = finite && is_finite(own[i]);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1) {
    sum += __shfl_down_sync(FULL_WARP, sum, distance);
  }
  if ((threadIdx.x & 31) == 0) parts[threadIdx.x / 32] = sum;
  if (!finite) atomicMin(&faults[row], op);
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; i++) sum += parts[i];
    atomicAdd(&digests[blockIdx.x], sum);
  }
}
KERNEL_EXPORT(logits_digest);
