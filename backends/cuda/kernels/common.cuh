// What every kernel shares: names for sizes and ids, and the few instructions that have no C++ spelling.
// Under LOCKSTEP_EMULATE the host header that is included before this file brings the latter.
// It must never hold a float operation that is not correctly rounded.

typedef signed char i8;
typedef unsigned short u16;
typedef long long i64;
typedef unsigned long long u64;

// Stands where there is no token, slot, sequence or row.
#define NO_ID 0xffffffffu
// Positions in a block of the KV cache.
#define BLOCK_LEN 64
// Length of a group of the reduction axis of a linear layer, and its 16-byte chunks.
#define GROUP 128
#define GROUP_CHUNKS 8
// The widest head.
#define HEAD_DIM_MAX 256
#define FULL_WARP 0xffffffffu

#ifndef LOCKSTEP_EMULATE
#define KERNEL_EXPORT(name)
// The one architecture that a file is compiled for, if it says so.
#define KERNEL_ONLY(architecture) static_assert(true, "")
#define DYN_SMEM(T, name)                                   \
  extern __shared__ __align__(128) unsigned char name##_raw[]; \
  T* name = reinterpret_cast<T*>(name##_raw)

// c (16 x 8, int32) += a (16 x 32, int8, rows) * b (32 x 8, int8, columns), by the whole warp.
__device__ __forceinline__ void mma_m16n8k32_s8(int* c, const unsigned* a, const unsigned* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Copies 16 aligned bytes to shared memory; they are there after a wait and a barrier.
__device__ __forceinline__ void cp_async16(void* to, const void* from) {
  unsigned at = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
// The same, with zeros for what does not exist; `from` is an address of the same buffer even then.
__device__ __forceinline__ void cp_async16_or_zero(void* to, const void* from, bool exists) {
  unsigned at = (unsigned)__cvta_generic_to_shared(to), len = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(len)
               : "memory");
}
#define cp_async_commit() asm volatile("cp.async.commit_group;" ::: "memory")
#define cp_async_wait(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")
#endif

// Whether a value is neither NaN nor infinite.
__device__ __forceinline__ bool is_finite(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// The magnitude of a value as an integer: integers of this kind compare as the magnitudes do, with
// infinity and NaN on top.
__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7fffffffu); }
__device__ __forceinline__ float negative_infinity() { return __uint_as_float(0xff800000u); }
