// Int8 products of a warpgroup, which is 128 threads, by wgmma: only sm_90a has them. Both operands lie in shared
// memory and are read at some time until the wait; what they are is said by descriptors. Under LOCKSTEP_EMULATE the
// host header brings the instructions, but not the descriptors: those are the kernel's own in either case.
#include "common.cuh"

// Accumulators that a thread holds of 64 x 64.
#define WGMMA_SUMS 32

#ifndef LOCKSTEP_EMULATE
__device__ __forceinline__ unsigned shared_address(const void* at) {
  return (unsigned)__cvta_generic_to_shared(at);
}
// What this thread has written to shared memory can be read by wgmma, after the next barrier.
#define fence_proxy_async() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define wgmma_commit() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")

// All of a thread's accumulators as operands of an instruction: nothing that touches them moves across it.
#define WGMMA_EIGHT(d, i)                                                                    \
  "+r"(d[i]), "+r"(d[i + 1]), "+r"(d[i + 2]), "+r"(d[i + 3]), "+r"(d[i + 4]), "+r"(d[i + 5]), \
      "+r"(d[i + 6]), "+r"(d[i + 7])
#define WGMMA_ALL(d) WGMMA_EIGHT(d, 0), WGMMA_EIGHT(d, 8), WGMMA_EIGHT(d, 16), WGMMA_EIGHT(d, 24)

// Before the first product, and after each wait: the registers are free to be written.
__device__ __forceinline__ void wgmma_fence(int* d) {
  asm volatile("wgmma.fence.sync.aligned;" : WGMMA_ALL(d)::"memory");
}

// Waits for all groups that were committed.
__device__ __forceinline__ void wgmma_wait_all(int* d) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" : WGMMA_ALL(d)::"memory");
}

// d (64 x 64, int32) = a (64 x 32, int8, rows) * b (64 x 32, int8, rows), transposed, by the warpgroup; added to what d
// holds if `adds`. Warp w has rows 16 w on; lane 4 g + q has in d[4 j + 2 i + c] row g + 8 i, column 8 j + 2 q + c.
__device__ __forceinline__ void wgmma_m64n64k32_s8(int* d, u64 a, u64 b, int adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, adds;\n"
      "}\n"
      : WGMMA_ALL(d)
      : "l"(a), "l"(b), "r"(adds));
}
#endif

// Describes an operand of 32 inputs without swizzling. It is made of core matrices, 8 rows of 16 bytes in a row each:
// `leading` bytes lie between the two halves of the inputs, `stride` bytes between one 8 rows and the next.
__device__ __forceinline__ u64 wgmma_operand(const void* at, unsigned leading, unsigned stride) {
  u64 begin = (shared_address(at) & 0x3ffffu) >> 4;
  return begin | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32;
}
