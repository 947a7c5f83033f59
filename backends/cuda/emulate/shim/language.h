// Qualifiers, vector types and the names of a thread's place. What a kernel calls lies in the other
// headers of this folder; what they call is in ../runtime. No function here may do any work of its
// own on floats.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

// Static shared memory is gathered in one section, so that it can be poisoned whenever a block
// starts. g++ ignores the attribute inside templates; build.sh therefore moves .bss there too.
#define __shared__ static __attribute__((section("emulate_shared")))

// Dynamic shared memory has exactly the size that the launch asked for.
#define DYN_SMEM(T, name) T* name = reinterpret_cast<T*>(::emulate::dynamic_shared())

// Functions of this shim that touch the caller's memory on behalf of the device are left out of the
// race checker's sight: what they do is told to it explicitly.
#if defined(__SANITIZE_THREAD__)
#define EMULATE_UNSEEN __attribute__((no_sanitize("thread"), noinline)) inline
#else
#define EMULATE_UNSEEN inline
#endif
#define EMULATE_EXACT static inline __attribute__((always_inline))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

#define EMULATE_VECTORS(T, N)                                                     \
  struct alignas(2 * sizeof(T)) N##2 {                                            \
    T x, y;                                                                       \
  };                                                                              \
  struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) N##4 {                  \
    T x, y, z, w;                                                                 \
  };                                                                              \
  EMULATE_EXACT N##2 make_##N##2(T x, T y) { return {x, y}; }                     \
  EMULATE_EXACT N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATE_VECTORS(int, int)
EMULATE_VECTORS(unsigned, uint)
EMULATE_VECTORS(float, float)
EMULATE_VECTORS(double, double)
EMULATE_VECTORS(signed char, char)
EMULATE_VECTORS(unsigned char, uchar)
EMULATE_VECTORS(short, short)
EMULATE_VECTORS(unsigned short, ushort)
EMULATE_VECTORS(long long, longlong)
EMULATE_VECTORS(unsigned long long, ulonglong)

namespace emulate {

// Where in the source a barrier or a collective stands: divergence is told by it.
struct Site {
  const char* file;
  int line;
};
#define EMULATE_SITE (::emulate::Site{__FILE__, __LINE__})

// What a kernel may know of its place.
struct Thread {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
};
// The thread that is running now; null while the host is.
extern Thread* running;

// Says what is wrong on one line that begins with "EMULATE:", and ends the process with status 77.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

void* dynamic_shared();

enum class BarrierKind : uint8_t { plain, count, all, any };
int barrier(Site site, BarrierKind kind, int predicate);

}  // namespace emulate

#define threadIdx (::emulate::running->thread)
#define blockIdx (::emulate::running->block)
#define blockDim (::emulate::running->block_dim)
#define gridDim (::emulate::running->grid_dim)
#define warpSize 32

#define EMULATE_BARRIER(kind, p) \
  ::emulate::barrier(EMULATE_SITE, ::emulate::BarrierKind::kind, (p) ? 1 : 0)
#define __syncthreads() ((void)EMULATE_BARRIER(plain, 0))
#define __syncthreads_count(p) EMULATE_BARRIER(count, p)
#define __syncthreads_and(p) EMULATE_BARRIER(all, p)
#define __syncthreads_or(p) EMULATE_BARRIER(any, p)

// One operating system thread runs everything between two sync points in program order, so there is
// nothing to fence. A fence that is missing is therefore not found.
EMULATE_EXACT void __threadfence() {}
EMULATE_EXACT void __threadfence_block() {}
EMULATE_EXACT void __threadfence_system() {}
#define __trap() ::emulate::fail("%s:%d: __trap()", __FILE__, __LINE__)
#define __ldg(p) (*(p))
