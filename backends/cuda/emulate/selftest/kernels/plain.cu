// Kernels that are right: work for streams and graphs, and probes of single instructions.
#include "shared_names.cuh"

extern "C" __global__ void add_to(int* out, const int* in, int n, int amount) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + amount;
}
KERNEL_EXPORT(add_to);

constexpr int kReverseThreads = 128;
extern "C" __global__ void __launch_bounds__(kReverseThreads, 2) dynamic_reverse(int* out) {
  DYN_SMEM(int, values);
  int t = threadIdx.x;
  values[t] = t * 3;
  __syncthreads();
  out[t] = values[blockDim.x - 1 - t];
}
KERNEL_EXPORT(dynamic_reverse);

// c = a * b + c for one warp; fragments lie lane by lane.
extern "C" __global__ void mma_probe(int* c, const unsigned* a, const unsigned* b) {
  int lane = threadIdx.x;
  mma_m16n8k32_s8(c + lane * 4, a + lane * 4, b + lane * 2);
}
KERNEL_EXPORT(mma_probe);

// What each lane gets from the collectives, ten numbers a lane.
extern "C" __global__ void warp_probe(long long* out) {
  int lane = threadIdx.x;
  long long* own = out + lane * 10;
  own[0] = __shfl_sync(kFullMask, lane * 7, 5);
  own[1] = __shfl_up_sync(kFullMask, lane, 3);
  own[2] = __shfl_down_sync(kFullMask, lane, 3);
  own[3] = __shfl_xor_sync(kFullMask, (long long)lane << 40, 4, 16);
  own[4] = (long long)__shfl_sync(kFullMask, 0.5f * (float)lane, 9, 8);
  own[5] = __ballot_sync(kFullMask, lane % 3 == 0);
  own[6] = __reduce_max_sync(kFullMask, (unsigned)lane << 27);
  own[7] = __reduce_min_sync(kFullMask, lane - 16);
  own[8] = __syncthreads_count(lane > 20) * 100 + __any_sync(kFullMask, lane == 31) * 10 +
           __all_sync(kFullMask, lane < 31);
  __syncwarp();
  own[9] = __reduce_add_sync(kFullMask, lane);
}
KERNEL_EXPORT(warp_probe);

// Single instructions whose results differ easily from those of C; 24 numbers.
extern "C" __global__ void arithmetic_probe(long long* out, float nan, float big) {
  int i = 0;
  out[i++] = __float2int_rn(2.5f);
  out[i++] = __float2int_rn(-3.5f);
  out[i++] = __float2int_rz(-2.9f);
  out[i++] = __float2int_rn(big);
  out[i++] = __float2int_rn(-big);
  out[i++] = __float2int_rn(nan);
  out[i++] = __float2uint_rz(-1.0f);
  out[i++] = (long long)__float2ull_rz(3.0e19f);
  out[i++] = (long long)__float2ull_rz(nan);
  out[i++] = (long long)__float2ull_rz(1.0e18f);
  out[i++] = __float_as_uint(__ull2float_rn(0x8000008000000001ull));
  out[i++] = __double2int_rn((double)nan);
  out[i++] = __umulhi(0xdeadbeefu, 0xcafebabeu);
  out[i++] = (long long)__umul64hi(0xdeadbeefcafebabeull, 0x123456789abcdef0ull);
  out[i++] = __dp4a(0x7f80ff01, (int)0x80807f02, 5);
  out[i++] = __byte_perm(0x03020100u, 0x07060504u, 0x7a40u);
  out[i++] = f32_to_bf16_bits(1.00390625f);
  out[i++] = f32_to_bf16_bits(nan);
  out[i++] = __float_as_uint(f16_bits_to_f32(0x0001));
  out[i++] = f32_to_f16_bits(65519.0f);
  out[i++] = f32_to_f16_bits(65520.0f);
  out[i++] = __float_as_uint(__fmaf_rn(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, -1.0f));
  out[i++] = __float_as_uint(__fadd_rn(__fmul_rn(1.0f + 0x1p-12f, 1.0f + 0x1p-12f), -1.0f));
  out[i++] = __clz(1) * 100 + __popc(0xf0f0u);
}
KERNEL_EXPORT(arithmetic_probe);

// All 65536 halves to floats and back.
extern "C" __global__ void half_round_trip(int* wrong) {
  unsigned half = blockIdx.x * blockDim.x + threadIdx.x;
  float f = f16_bits_to_f32((unsigned short)half);
  if (f == f && f32_to_f16_bits(f) != half) atomicAdd(wrong, 1);
}
KERNEL_EXPORT(half_round_trip);

// Atomics on 64-bit words, on shared and on global memory.
extern "C" __global__ void atomic_probe(unsigned long long* out) {
  __shared__ unsigned long long in_shared;
  if (threadIdx.x == 0) in_shared = 1;
  __syncthreads();
  unsigned long long value = (unsigned long long)threadIdx.x << 33;
  atomicAdd(&in_shared, value);
  atomicMax(&out[1], value);
  atomicMin(&out[2], value + 7);
  for (unsigned long long old = 0, seen; (seen = atomicCAS(&out[3], old, old + 1)) != old;)
    old = seen;
  __syncthreads();
  if (threadIdx.x == 0) out[0] = in_shared;
}
KERNEL_EXPORT(atomic_probe);
