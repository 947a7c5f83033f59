// The tensor core's integer product and the asynchronous copies to shared memory. Float products of
// tensor cores have no exactly defined result and are not here.
#pragma once
#include "warp.h"

namespace emulate {

struct MmaFragments {
  unsigned a[4], b[2];
  int c[4];
};

// mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32. Lane = 4 * group + quad. Of A (16 x 32) it holds
// rows group and group + 8, columns 4 * quad .. + 3 and the same + 16; of B (32 x 8) column group,
// rows 4 * quad .. + 3 and the same + 16; of C (16 x 8) rows group and group + 8, columns 2 * quad
// and 2 * quad + 1.
EMULATE_UNSEEN void combine_mma_s8(void* lanes[32], uint32_t) {
  int8_t a[16][32], b[32][8];
  for (int lane = 0; lane < 32; lane++) {
    auto* own = static_cast<MmaFragments*>(lanes[lane]);
    int group = lane >> 2, quad = lane & 3;
    for (int i = 0; i < 16; i++) {
      int row = group + (i >> 2 & 1) * 8, column = quad * 4 + (i & 3) + (i >> 3) * 16;
      a[row][column] = (int8_t)(own->a[i >> 2] >> (8 * (i & 3)));
    }
    for (int i = 0; i < 8; i++) {
      int row = quad * 4 + (i & 3) + (i >> 2) * 16;
      b[row][group] = (int8_t)(own->b[i >> 2] >> (8 * (i & 3)));
    }
  }
  for (int lane = 0; lane < 32; lane++) {
    auto* own = static_cast<MmaFragments*>(lanes[lane]);
    int group = lane >> 2, quad = lane & 3;
    for (int i = 0; i < 4; i++) {
      int row = group + (i >> 1) * 8, column = quad * 2 + (i & 1);
      unsigned sum = (unsigned)own->c[i];  // wraps
      for (int k = 0; k < 32; k++) sum += (unsigned)((int)a[row][k] * (int)b[k][column]);
      own->c[i] = (int)sum;
    }
  }
}

EMULATE_UNSEEN void mma_s8(Site site, int* c, const unsigned* a, const unsigned* b) {
  MmaFragments exchange;
  for (int i = 0; i < 4; i++) {
    exchange.a[i] = a[i];
    exchange.c[i] = c[i];
  }
  exchange.b[0] = b[0];
  exchange.b[1] = b[1];
  warp_collect(0xffffffffu, WarpOp::mma_s8, site, &combine_mma_s8, &exchange);
  for (int i = 0; i < 4; i++) c[i] = exchange.c[i];
}

// A copy that lands some time between its start and the wait for its group.
void copy_async(Site site, void* shared, const void* global, unsigned bytes, bool exists);
void copy_commit();
void copy_wait(int groups_left);

}  // namespace emulate

#define mma_m16n8k32_s8(c, a, b) ::emulate::mma_s8(EMULATE_SITE, c, a, b)
#define cp_async16(shared, global) ::emulate::copy_async(EMULATE_SITE, shared, global, 16, true)
#define cp_async16_or_zero(shared, global, exists) \
  ::emulate::copy_async(EMULATE_SITE, shared, global, 16, exists)
#define cp_async_commit() ::emulate::copy_commit()
#define cp_async_wait(n) ::emulate::copy_wait(n)
