// The integer products of warpgroups. They run on their own: what they read and write is theirs from their start to the
// wait for their group. When that happens, and what is refused, is in ../runtime/wgmma.cpp.
#pragma once
#include "warp.h"

namespace emulate {

// Where this byte is in the window of shared memory that descriptors know.
unsigned shared_address(const void* at);
// What the calling thread's asynchronous copies have written can be read by products after the next barrier.
void fence_for_products();
void product_fence(Site site, int* sums);
// Sums (64 x n) of the calling warp's warpgroup: n / 2 per thread.
void product_s8(Site site, int* sums, int n, uint64_t a, uint64_t b, bool adds);
void product_commit(Site site);
void product_wait(Site site, int groups_left);

}  // namespace emulate

#define shared_address(at) ::emulate::shared_address(at)
#define fence_proxy_async() ::emulate::fence_for_products()
#define wgmma_fence(sums) ::emulate::product_fence(EMULATE_SITE, sums)
#define wgmma_m64n64k32_s8(sums, a, b, adds) \
  ::emulate::product_s8(EMULATE_SITE, sums, 64, a, b, (adds) ? true : false)
#define wgmma_commit() ::emulate::product_commit(EMULATE_SITE)
// On a device the compiler must not move accumulators across the wait; here they are memory.
#define wgmma_wait_all(sums) ((void)(sums), ::emulate::product_wait(EMULATE_SITE, 0))
