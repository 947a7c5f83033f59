// The same as bench_peak.cu by the products of warpgroups, which alone reach what such a device can do.
#include "wgmma.cuh"

KERNEL_ONLY(sm_90a);

// `rounds` times 4 products of 64 x 64 x 32 per warpgroup, of the same operands in shared memory.
extern "C" __global__ void __launch_bounds__(256)
int8_peak_wgmma(int* out, int rounds) {
  __shared__ __align__(128) i8 operands[2 * 4096];
  for (unsigned i = threadIdx.x; i < 2 * 4096 / 4; i += 256) {
    reinterpret_cast<unsigned*>(operands)[i] = i * 16843009u;
  }
  fence_proxy_async();
  __syncthreads();
  int sums[WGMMA_SUMS];
  for (int round = 0; round < rounds; round++) {
    wgmma_fence(sums);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const i8* at = operands + i % 2 * 2048;
      u64 a = wgmma_operand(at, 1024, 128), b = wgmma_operand(operands + 4096, 1024, 128);
      wgmma_m64n64k32_s8(sums, a, b, round + i > 0);
    }
    wgmma_commit();
    wgmma_wait_all(sums);
  }
  int all = 0;
#pragma unroll
  for (int i = 0; i < WGMMA_SUMS; i++) all ^= sums[i];
  out[blockIdx.x * 256 + threadIdx.x] = all;
}
KERNEL_EXPORT(int8_peak_wgmma);
