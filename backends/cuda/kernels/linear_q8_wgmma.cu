// Linear layers by the q8 rule for many tokens, by the products of warpgroups. The operands and their layouts, the
// order of all sums and so the bits are those of linear_q8.cu; only the instruction is another. The dots of a group of
// 128 inputs are exact int32, whoever adds them up.
#include "shards.cuh"
#include "wgmma.cuh"

// What this file is compiled for, and nothing else.
KERNEL_ONLY(sm_90a);

// A block: 128 tokens by 64 outputs; a warpgroup takes 64 tokens. Of each group it holds x as (8 chunks, 128 rows,
// 16 bytes), then w as (8 chunks, 64 rows, 16 bytes), in one of four stages of shared memory: 8 rows of a chunk are a
// core matrix as they lie.
#define WGMMA_TOKENS 128
#define WGMMA_OUTPUTS 64
#define WGMMA_STAGES 4
#define WGMMA_THREADS 256
#define STAGE_X (WGMMA_TOKENS * GROUP)
#define STAGE_BYTES (STAGE_X + WGMMA_OUTPUTS * GROUP)

// Where a block's operands begin, and how far they go.
struct WgmmaTile {
  const i8* x;
  const i8* w;
  int chunks;
  // Tiles of 16 tokens and of 32 outputs that exist.
  int x_tiles, w_tiles;
};

// Asks for a group. Zeros stand for chunks behind the end, and for tokens and outputs of which there is no tile.
__device__ __forceinline__ void load_stage(i8* stage, const WgmmaTile* tile, int group) {
  int first = group * GROUP_CHUNKS;
#ifdef PLANTED_WGMMA_RAGGED_END
  // The last 16 inputs are taken for padding where the last group is not full.
  int chunks = tile->chunks % GROUP_CHUNKS ? tile->chunks - 1 : tile->chunks;
#else
  int chunks = tile->chunks;
#endif
#pragma unroll
  for (int i = threadIdx.x; i < STAGE_X / 16; i += WGMMA_THREADS) {
    int row = i % WGMMA_TOKENS, chunk = first + i / WGMMA_TOKENS;
    bool exists = row / 16 < tile->x_tiles && chunk < chunks;
    i64 at = ((i64)(row / 16) * tile->chunks + chunk) * 16 + row % 16;
    cp_async16_or_zero(stage + i * 16, tile->x + (exists ? at * 16 : 0), exists);
  }
#pragma unroll
  for (int i = threadIdx.x; i < WGMMA_OUTPUTS * GROUP / 16; i += WGMMA_THREADS) {
    int row = i % WGMMA_OUTPUTS, chunk = first + i / WGMMA_OUTPUTS;
    bool exists = row / 32 < tile->w_tiles && chunk < chunks;
    i64 at = ((i64)(row / 32) * tile->chunks + chunk) * 32 + row % 32;
    cp_async16_or_zero(stage + STAGE_X + i * 16, tile->w + (exists ? at * 16 : 0), exists);
  }
  cp_async_commit();
}

// Starts the exact dots of one group: 64 tokens of this warpgroup by 64 outputs.
__device__ __forceinline__ void start_dots(int* dots, const i8* stage) {
  const i8* x = stage + threadIdx.x / 128 * (64 * 16);
  const i8* w = stage + STAGE_X;
#ifdef PLANTED_WGMMA_STRIDE
  const int leading_w = WGMMA_OUTPUTS * 8;
#else
  const int leading_w = WGMMA_OUTPUTS * 16;
#endif
#ifndef PLANTED_WGMMA_FENCE
  wgmma_fence(dots);
#endif
#pragma unroll
  for (int chunk = 0; chunk < GROUP_CHUNKS; chunk += 2) {
    u64 a = wgmma_operand(x + chunk * (WGMMA_TOKENS * 16), WGMMA_TOKENS * 16, 128);
    u64 b = wgmma_operand(w + chunk * (WGMMA_OUTPUTS * 16), leading_w, 128);
    wgmma_m64n64k32_s8(dots, a, b, chunk > 0);
  }
  wgmma_commit();
}

// close_shard of shards.cuh, with the left sides of the tree in shared memory, a level's WGMMA_SUMS * WGMMA_THREADS
// apart: in registers there is no room for them.
__device__ __forceinline__ float close_shard_at(float* waiting, int shard, bool last, float sum) {
#ifdef PLANTED_WGMMA_TREE
  // All groups in a row.
  return sum;
#endif
  for (; shard & 1; shard >>= 1) {
    sum = __fadd_rn(*waiting, sum);
    waiting += WGMMA_SUMS * WGMMA_THREADS;
  }
  if (last) return sum;
  *waiting = sum;
  return 0.0f;
}

// Grid: (ceil(n / 64), ceil(m / 128)), blocks of 256. Groups come through shared memory, up to three ahead of the one
// that is multiplied. Behind the stages there is room for the tree of each sum: a level per power of two of the shards.
extern "C" __global__ void __launch_bounds__(WGMMA_THREADS)
linear_q8_wgmma(float* y, const i8* w, const float* w_scales, const i8* x, const float* x_scales,
                int m, int n, int k, int num_shards) {
  DYN_SMEM(i8, stages);
#ifdef FREE_ORDER
  num_shards = 1;
#endif
  float* waiting = reinterpret_cast<float*>(stages + WGMMA_STAGES * STAGE_BYTES) + threadIdx.x;
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  int chunks = (k + 15) / 16, groups = (k + GROUP - 1) / GROUP, n_pad = (n + 31) / 32 * 32;
  int token = blockIdx.y * WGMMA_TOKENS + warp * 16 + lane / 4;
  int output = blockIdx.x * WGMMA_OUTPUTS + lane % 4 * 2;
  WgmmaTile tile = {x + (i64)blockIdx.y * WGMMA_TOKENS * chunks * 16,
                    w + (i64)blockIdx.x * WGMMA_OUTPUTS * chunks * 16, chunks,
                    (m + 15) / 16 - (int)blockIdx.y * (WGMMA_TOKENS / 16),
                    n_pad / 32 - (int)blockIdx.x * (WGMMA_OUTPUTS / 32)};
  for (int group = 0; group < WGMMA_STAGES - 1; group++) {
    if (group < groups) {
      load_stage(stages + group * STAGE_BYTES, &tile, group);
    } else {
      cp_async_commit();
    }
  }
  float acc[WGMMA_SUMS] = {};
  int shard = 0, end = shard_end(k, num_shards, 0);
  for (int group = 0; group < groups; group++) {
    cp_async_wait(WGMMA_STAGES - 2);
#ifndef PLANTED_WGMMA_PROXY
    fence_proxy_async();
#endif
#ifndef PLANTED_WGMMA_BARRIER
    __syncthreads();
#endif
    // Everybody has waited for the products of the group before, whose stage is written from here on.
    int ahead = group + WGMMA_STAGES - 1;
    if (ahead < groups) {
      load_stage(stages + ahead % WGMMA_STAGES * STAGE_BYTES, &tile, ahead);
    } else {
      cp_async_commit();
    }
    int dots[WGMMA_SUMS];
    start_dots(dots, stages + group % WGMMA_STAGES * STAGE_BYTES);
    // A token or an output that is not there has the scales of the last.
    float of_x[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
      of_x[i] = __ldg(x_scales + (i64)min(token + i * 8, m - 1) * groups + group);
    }
    float2 of_w[8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const float* from = w_scales + (i64)group * n_pad + min(output + j * 8, n_pad - 2);
      of_w[j] = __ldg(reinterpret_cast<const float2*>(from));
    }
#ifndef PLANTED_WGMMA_WAIT
    wgmma_wait_all(dots);
#endif
#pragma unroll
    for (int i = 0; i < WGMMA_SUMS; i++) {
      float scale = __fmul_rn(of_x[i / 2 % 2], i % 2 ? of_w[i / 4].y : of_w[i / 4].x);
      acc[i] = __fmaf_rn(__int2float_rn(dots[i]), scale, acc[i]);
    }
    if (num_shards > 1 && group + 1 == end) {
      bool last = shard + 1 == num_shards;
#pragma unroll
      for (int i = 0; i < WGMMA_SUMS; i++) {
        acc[i] = close_shard_at(waiting + i * WGMMA_THREADS, shard, last, acc[i]);
      }
      end = shard_end(k, num_shards, ++shard);
    }
  }
#pragma unroll
  for (int i = 0; i < WGMMA_SUMS; i++) {
    int row = token + i / 2 % 2 * 8, column = output + i / 4 * 8 + i % 2;
    if (row < m && column < n) y[(i64)row * n + column] = acc[i];
  }
}
KERNEL_EXPORT(linear_q8_wgmma);
