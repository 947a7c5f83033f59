// Products of a warpgroup, and the ways to get them wrong.

#define TILE 2048
#define STAGE (2 * TILE)

// Sums (64 x 64) of products of tiles, each of a (2 halves, 64 rows, 16 bytes) and b the same, that come through two
// stages; thread t gives its 32 sums to out + 32 t. Faults: 1 no wgmma.fence, 2 no wait, 3 no fence for what copies
// have written, 4 the stage is written again while a product may read it, 5 rows at the wrong distance, 6 an operand
// that goes beyond shared memory, 7 a swizzled one, 8 one warp asks for something else, 9 no commit, 10 a sum is
// written before the wait, 11 no barrier after the wait for copies, 12 no wait for copies, 13 reserved bits.
extern "C" __global__ void product_tiles(int* out, const signed char* in, int tiles, int fault) {
  DYN_SMEM(signed char, stages);
  int t = threadIdx.x;
  auto fetch = [&](int tile) {
    for (int i = t; i < STAGE / 16; i += 128)
      cp_async16(stages + (tile & 1) * STAGE + i * 16, in + tile * STAGE + i * 16);
    cp_async_commit();
  };
  auto operand = [&](const signed char* at) {
    unsigned long long stride = fault == 5 ? 64 : 128, leading = fault == 6 ? STAGE * 2 : TILE / 2;
    unsigned long long bits = fault == 7 ? 1ull << 62 : fault == 13 ? 1ull << 14 : 0;
    return shared_address(at) >> 4 | leading / 16 << 16 | stride / 16 << 32 | bits;
  };
  int sums[32];
  fetch(0);
  for (int tile = 0; tile < tiles; tile++) {
    if (fault != 12) cp_async_wait(0);
    if (fault != 3) fence_proxy_async();
    if (fault != 11) __syncthreads();
    if (tile + 1 < tiles) fetch(tile + 1);
    const signed char* stage = stages + (tile & 1) * STAGE;
    if (fault != 1) wgmma_fence(sums);
    const signed char* b = stage + (fault == 8 && t >= 96 ? 0 : TILE);
    wgmma_m64n64k32_s8(sums, operand(stage), operand(b), tile > 0);
    if (fault != 9) wgmma_commit();
    if (fault == 10) sums[3] = 5;
    if (fault == 4 && tile + 1 < tiles)
      ::emulate::product_wait(EMULATE_SITE, 1);
    else if (fault != 2)
      wgmma_wait_all(sums);
  }
  if (fault == 12) cp_async_wait(0);
  for (int i = 0; i < 32; i++) out[t * 32 + i] = sums[i];
}
KERNEL_EXPORT(product_tiles);
