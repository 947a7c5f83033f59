// Kernels that the emulator must refuse, each for one misuse of barriers, collectives or copies.
#include "shared_names.cuh"

extern "C" __global__ void ended_at_barrier(int* out) {
  if (threadIdx.x < 7) __syncthreads();
  out[threadIdx.x] = 1;
}
KERNEL_EXPORT(ended_at_barrier);

extern "C" __global__ void two_barriers(int* out) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  out[threadIdx.x] = 1;
}
KERNEL_EXPORT(two_barriers);

extern "C" __global__ void shuffle_with_ended(int* out) {
  if (threadIdx.x & 1) return;
  out[threadIdx.x] = __shfl_xor_sync(kFullMask, 1, 2);
}
KERNEL_EXPORT(shuffle_with_ended);

extern "C" __global__ void shuffle_from_outside(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1, 16);
}
KERNEL_EXPORT(shuffle_from_outside);

extern "C" __global__ void shuffle_not_in_mask(int* out) {
  out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1, 1);
}
KERNEL_EXPORT(shuffle_not_in_mask);

extern "C" __global__ void mixed_collectives(int* out) {
  if (threadIdx.x & 1)
    __syncwarp();
  else
    out[threadIdx.x] = __shfl_xor_sync(kFullMask, 1, 2);
}
KERNEL_EXPORT(mixed_collectives);

extern "C" __global__ void barrier_against_warp(int* out) {
  if (threadIdx.x < 16)
    __syncthreads();
  else
    __syncwarp();
  out[threadIdx.x] = 1;
}
KERNEL_EXPORT(barrier_against_warp);

extern "C" __global__ void copy_never_waited(int* out) {
  __shared__ __align__(16) int staged[256];
  cp_async16(staged + threadIdx.x * 4, out + threadIdx.x * 4);
  cp_async_commit();
}
KERNEL_EXPORT(copy_never_waited);

extern "C" __global__ void copy_misaligned(int* out) {
  __shared__ __align__(16) int staged[260];
  cp_async16(staged + threadIdx.x * 4 + 1, out + threadIdx.x * 4);
  cp_async_commit();
  cp_async_wait(0);
}
KERNEL_EXPORT(copy_misaligned);

extern "C" __global__ void mma_of_half_a_warp(int* out) {
  unsigned a[4] = {}, b[2] = {};
  mma_m16n8k32_s8(out, a, b);
}
KERNEL_EXPORT(mma_of_half_a_warp);

extern "C" __global__ void odd_width(int* out) {
  out[threadIdx.x] = __shfl_sync(kFullMask, 1, 0, 12);
}
KERNEL_EXPORT(odd_width);

extern "C" __global__ void trap(int* out) {
  if (threadIdx.x == 5) __trap();
  out[threadIdx.x] = 1;
}
KERNEL_EXPORT(trap);

// Far outside, so that it faults in every build.
extern "C" __global__ void far_outside(int* out) { out[threadIdx.x + (1 << 20)] = 1; }
KERNEL_EXPORT(far_outside);

// One element past the end: seen by the race checker and the address sanitizer, and, being a write,
// at the free.
extern "C" __global__ void one_past_end(int* out, int n) {
  if (threadIdx.x == 0) out[n] = 1;
}
KERNEL_EXPORT(one_past_end);

extern "C" __global__ void past_end_of_shared(int* out, int n) {
  __shared__ int values[64];
  __shared__ int others[64];
  values[threadIdx.x] = 1;
  others[threadIdx.x] = 2;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x + n] + others[threadIdx.x];
}
KERNEL_EXPORT(past_end_of_shared);

extern "C" __global__ void past_end_of_dynamic(int* out, int n) {
  DYN_SMEM(int, values);
  values[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x + n];
}
KERNEL_EXPORT(past_end_of_dynamic);

// What is undefined in C++ is not what a device does; the address sanitizer's build tells.
extern "C" __global__ void overflows(int* out, int n) {
  int big = 0x7fffffff - 255;
  out[threadIdx.x] = big + n;
}
KERNEL_EXPORT(overflows);

extern "C" __global__ void casts_too_big(int* out, int n) {
  out[threadIdx.x] = (int)(1e9f * (float)n);
}
KERNEL_EXPORT(casts_too_big);

#ifdef PLANTED_IN_SELFTEST
constexpr int kPlanted = 1;
#else
constexpr int kPlanted = 0;
#endif
extern "C" __global__ void tells_planted(int* out) { out[threadIdx.x] = kPlanted; }
KERNEL_EXPORT(tells_planted);

extern "C" __global__ void misaligned_load(int* out) {
  int4* p = reinterpret_cast<int4*>(out + 1);
  if (threadIdx.x == 0) p[4] = p[0];
}
KERNEL_EXPORT(misaligned_load);

extern "C" __global__ void reads_unwritten(int* out) {
  __shared__ int values[64];
  out[threadIdx.x] = values[threadIdx.x];
}
KERNEL_EXPORT(reads_unwritten);
