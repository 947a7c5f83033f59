// Linear layers by the q8 rule. Inside a group of 128 inputs the dot product is an exact int32; across the groups of a
// shard acc = fma(f32(dot), s_x * s_w, acc) in run order; shards are joined by a balanced tree. Both kernels give the
// same bits, whatever the number of tokens.
//
// w: (ceil(n / 32), ceil(k / 16), 32 rows, 16 bytes), zero padded. w_scales: (groups, n up to a multiple of 32).
// x: (ceil(m / 16), ceil(k / 16), 16 rows, 16 bytes), zero padded. x_scales: (m, groups). y: (m, n).
// num_shards: as backends/numerics/src/groups.rs cuts k for a row-parallel matrix, 1 for any other.
#include "common.cuh"
#include "shards.cuh"

// Groups whose dot products of one round lie in shared memory, for at most FEW_TOKENS tokens.
#define FEW_ROUND 16
#define FEW_TOKENS 8
#define FEW_WARPS 8

// A group of the weights of this lane's output, 16 inputs each; zeros behind the end.
__device__ __forceinline__ void load_weights(int4* to, const int4* w, int group, int chunks) {
  const int4* from = w + (i64)group * GROUP_CHUNKS * 32;
  int left = chunks - group * GROUP_CHUNKS;
#ifdef PLANTED_RAGGED_END
  // The last 16 inputs of a group that is not full are taken for padding.
  if (left < GROUP_CHUNKS) left--;
#endif
#pragma unroll
  for (int i = 0; i < GROUP_CHUNKS; i++) {
    to[i] = make_int4(0, 0, 0, 0);
    if (i < left) to[i] = __ldg(from + i * 32);
  }
}

__device__ __forceinline__ int dot16(int4 a, int4 b, int sum) {
  sum = __dp4a(a.x, b.x, sum);
  sum = __dp4a(a.y, b.y, sum);
  sum = __dp4a(a.z, b.z, sum);
  return __dp4a(a.w, b.w, sum);
}

#ifndef FREE_ORDER
// The part of linear_q8_few for M tokens at most. Warps share the groups; the dots of a round go to one half of `dots`
// and are added while the next round is computed into the other, so that a barrier a round is enough.
template <int M>
__device__ __forceinline__ void few(float* y, const i8* w_bytes, const float* w_scales,
                                    const i8* x_bytes, const float* x_scales, int m, int n, int k,
                                    int num_shards, int* dots) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  int chunks = (k + 15) / 16, groups = (k + GROUP - 1) / GROUP, n_pad = (n + 31) / 32 * 32;
  const int4* w = reinterpret_cast<const int4*>(w_bytes) + (i64)blockIdx.x * chunks * 32 + lane;
  const int4* x = reinterpret_cast<const int4*>(x_bytes);
  int output = blockIdx.x * 32 + lane;
  const int PART = M < 4 ? M : 4;
  ShardTree tree = {};
  float acc = 0.0f, total = 0.0f;
  int shard = 0, end = shard_end(k, num_shards, 0);
  int4 next[GROUP_CHUNKS];
  if (warp < groups) load_weights(next, w, warp, chunks);
  for (int first = 0; first < groups; first += FEW_ROUND) {
    int* round = dots + (first / FEW_ROUND & 1) * (FEW_ROUND * M * 32);
    int last = min(groups, first + FEW_ROUND);
    for (int group = first + warp; group < last; group += FEW_WARPS) {
      int4 now[GROUP_CHUNKS];
#pragma unroll
      for (int i = 0; i < GROUP_CHUNKS; i++) now[i] = next[i];
      if (group + FEW_WARPS < groups) load_weights(next, w, group + FEW_WARPS, chunks);
      // A few tokens at a time, so that their inputs do not fill the registers.
#pragma unroll 1
      for (int token = 0; token < M; token += PART) {
        int sums[PART] = {}, left = chunks - group * GROUP_CHUNKS;
        const int4* inputs = x + (i64)group * GROUP_CHUNKS * 16 + token;
#pragma unroll
        for (int i = 0; i < GROUP_CHUNKS; i++) {
          if (i >= left) break;
#pragma unroll
          for (int t = 0; t < PART; t++) {
            sums[t] = dot16(now[i], __ldg(inputs + i * 16 + t), sums[t]);
          }
        }
#pragma unroll
        for (int t = 0; t < PART; t++) {
          round[((group - first) * M + token + t) * 32 + lane] = sums[t];
        }
      }
    }
#ifndef PLANTED_GEMV_BARRIER
    __syncthreads();
#endif
    if (warp >= m) continue;
    for (int group = first; group < last; group++) {
      float scale = __fmul_rn(__ldg(x_scales + (i64)warp * groups + group),
                              __ldg(w_scales + (i64)group * n_pad + output));
      int dot = round[((group - first) * M + warp) * 32 + lane];
      acc = __fmaf_rn(__int2float_rn(dot), scale, acc);
      if (group + 1 == end) {
        total = close_shard(&tree, shard, acc);
        acc = 0.0f;
        end = shard_end(k, num_shards, ++shard);
      }
    }
  }
  if (warp < m && output < n) y[(i64)warp * n + output] = total;
}
#else
// The same with a free order: each warp adds up its own groups, and what the warps have is added at the end.
template <int M>
__device__ __forceinline__ void few(float* y, const i8* w_bytes, const float* w_scales,
                                    const i8* x_bytes, const float* x_scales, int m, int n, int k,
                                    int, int* dots) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  int chunks = (k + 15) / 16, groups = (k + GROUP - 1) / GROUP, n_pad = (n + 31) / 32 * 32;
  const int4* w = reinterpret_cast<const int4*>(w_bytes) + (i64)blockIdx.x * chunks * 32 + lane;
  const int4* x = reinterpret_cast<const int4*>(x_bytes);
  int output = blockIdx.x * 32 + lane;
  float acc[M] = {};
  int4 next[GROUP_CHUNKS];
  if (warp < groups) load_weights(next, w, warp, chunks);
  for (int group = warp; group < groups; group += FEW_WARPS) {
    int4 now[GROUP_CHUNKS];
#pragma unroll
    for (int i = 0; i < GROUP_CHUNKS; i++) now[i] = next[i];
    if (group + FEW_WARPS < groups) load_weights(next, w, group + FEW_WARPS, chunks);
    float of_w = __ldg(w_scales + (i64)group * n_pad + output);
    int left = chunks - group * GROUP_CHUNKS;
#pragma unroll
    for (int t = 0; t < M; t++) {
      const int4* inputs = x + (i64)group * GROUP_CHUNKS * 16 + t;
      int sum = 0;
#pragma unroll
      for (int i = 0; i < GROUP_CHUNKS; i++) {
        if (i < left) sum = dot16(now[i], __ldg(inputs + i * 16), sum);
      }
      float of_x = __ldg(x_scales + (i64)min(t, m - 1) * groups + group);
      acc[t] = __fmaf_rn(__int2float_rn(sum), __fmul_rn(of_x, of_w), acc[t]);
    }
  }
  float* sums = reinterpret_cast<float*>(dots);
#pragma unroll
  for (int t = 0; t < M; t++) sums[(warp * M + t) * 32 + lane] = acc[t];
  __syncthreads();
  if (warp >= m || output >= n) return;
  float total = 0.0f;
  for (int i = 0; i < FEW_WARPS; i++) total = __fadd_rn(total, sums[(i * M + warp) * 32 + lane]);
  y[(i64)warp * n + output] = total;
}
#endif

// At most 8 tokens, by dp4a. A block takes 32 outputs: a lane owns an output, so that a warp's load is 512 contiguous
// bytes of weights; afterwards warp t owns token t. The next group of weights is under way while one is multiplied.
extern "C" __global__ void __launch_bounds__(256)
linear_q8_few(float* y, const i8* w, const float* w_scales, const i8* x, const float* x_scales,
              int m, int n, int k, int num_shards) {
  __shared__ int dots[2 * FEW_ROUND * FEW_TOKENS * 32];
  if (m == 1) {
    few<1>(y, w, w_scales, x, x_scales, m, n, k, num_shards, dots);
  } else if (m == 2) {
    few<2>(y, w, w_scales, x, x_scales, m, n, k, num_shards, dots);
  } else if (m <= 4) {
    few<4>(y, w, w_scales, x, x_scales, m, n, k, num_shards, dots);
  } else {
    few<8>(y, w, w_scales, x, x_scales, m, n, k, num_shards, dots);
  }
}
KERNEL_EXPORT(linear_q8_few);

// A block of linear_q8_many: 64 tokens by 32 outputs; a warp takes 16 tokens. Of each group it holds 4 tiles of x
// (128 rows of 16 bytes a chunk) and one of w, in one of four stages of shared memory.
#define MANY_TOKENS 64
#define MANY_OUTPUTS 32
#define MANY_STAGES 4
#define STAGE_X (MANY_TOKENS * GROUP)
#define STAGE_BYTES (STAGE_X + MANY_OUTPUTS * GROUP)

// Where a block's operands begin, and how far they go.
struct ManyTile {
  const i8* x;
  const i8* w;
  int chunks;
  // Tiles of 16 tokens that exist.
  int x_tiles;
};

// Asks for a group: x as (4 tiles, 8 chunks, 16 rows, 16 bytes), then w as (8 chunks, 32 rows, 16 bytes). Zeros stand
// for chunks behind the end.
__device__ __forceinline__ void load_stage(i8* stage, const ManyTile* tile, int group) {
  int first = group * GROUP_CHUNKS;
  for (int i = threadIdx.x; i < STAGE_BYTES / 16; i += 128) {
    i8* to = stage + i * 16;
    const i8* from = nullptr;
    if (i < STAGE_X / 16) {
      int x_tile = i / 128, chunk = first + i / 16 % GROUP_CHUNKS;
      if (x_tile < tile->x_tiles && chunk < tile->chunks) {
        from = tile->x + (((i64)x_tile * tile->chunks + chunk) * 16 + i % 16) * 16;
      }
    } else {
      int at = i - STAGE_X / 16, chunk = first + at / 32;
      if (chunk < tile->chunks) from = tile->w + ((i64)chunk * 32 + at % 32) * 16;
    }
    if (from) {
      cp_async16(to, from);
    } else {
      *reinterpret_cast<int4*>(to) = make_int4(0, 0, 0, 0);
    }
  }
  cp_async_commit();
}

// The exact dots of one group: 16 tokens of this warp by 32 outputs, as 4 fragments of 16 x 8.
__device__ __forceinline__ void multiply_stage(int (*dots)[4], const i8* stage) {
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  // A lane's word of a fragment is its own lane's of 32 in a row.
  const unsigned* x = reinterpret_cast<const unsigned*>(stage + warp * 16 * GROUP) + lane;
  const unsigned* w = reinterpret_cast<const unsigned*>(stage + STAGE_X) + lane;
#pragma unroll
  for (int j = 0; j < 4; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) dots[j][i] = 0;
  }
#pragma unroll
  for (int chunk = 0; chunk < GROUP_CHUNKS; chunk += 2) {
    unsigned a[4] = {x[chunk * 64], x[chunk * 64 + 32], x[chunk * 64 + 64], x[chunk * 64 + 96]};
#pragma unroll
    for (int j = 0; j < 4; j++) {
      unsigned b[2] = {w[chunk * 128 + j * 32], w[chunk * 128 + 128 + j * 32]};
      mma_m16n8k32_s8(dots[j], a, b);
    }
  }
}

// The scales of a group of the two tokens of a thread. A token that is not there has those of the last.
__device__ __forceinline__ void load_scales(
    float* to, const float* scales, int token, int m, int groups) {
#pragma unroll
  for (int i = 0; i < 2; i++) to[i] = __ldg(scales + (i64)min(token + i * 8, m - 1) * groups);
}

// Any number of tokens, by int8 tensor cores. Grid: (ceil(n / 32), ceil(m / 64)), blocks of 128. Groups come through
// shared memory, up to three ahead of the one that is multiplied. Each thread holds 16 outputs: tokens g and g + 8 of
// its warp by outputs 8 j + 2 q and 8 j + 2 q + 1, with g = lane / 4 and q = lane % 4.
extern "C" __global__ void __launch_bounds__(128)
linear_q8_many(float* y, const i8* w, const float* w_scales, const i8* x, const float* x_scales,
               int m, int n, int k, int num_shards) {
  __shared__ __align__(128) i8 stages[MANY_STAGES * STAGE_BYTES];
#ifdef FREE_ORDER
  num_shards = 1;
#endif
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  int chunks = (k + 15) / 16, groups = (k + GROUP - 1) / GROUP, n_pad = (n + 31) / 32 * 32;
  int token = blockIdx.y * MANY_TOKENS + warp * 16 + lane / 4;
  int output = blockIdx.x * MANY_OUTPUTS + lane % 4 * 2;
  ManyTile tile = {x + (i64)blockIdx.y * MANY_TOKENS * chunks * 16,
                   w + (i64)blockIdx.x * MANY_OUTPUTS * chunks * 16, chunks,
                   (m + 15) / 16 - (int)blockIdx.y * (MANY_TOKENS / 16)};
  for (int group = 0; group < MANY_STAGES - 1; group++) {
    if (group < groups) {
      load_stage(stages + group * STAGE_BYTES, &tile, group);
    } else {
      cp_async_commit();
    }
  }
  ShardTree trees[4][4] = {};
  float acc[4][4] = {}, total[4][4] = {};
  int shard = 0, end = shard_end(k, num_shards, 0);
  for (int group = 0; group < groups; group++) {
    cp_async_wait(MANY_STAGES - 2);
#ifndef PLANTED_GEMM_BARRIER
    __syncthreads();
#endif
    // Everybody has left the stage of the group before, which is written from here on.
    int ahead = group + MANY_STAGES - 1;
    if (ahead < groups) {
      load_stage(stages + ahead % MANY_STAGES * STAGE_BYTES, &tile, ahead);
    } else {
      cp_async_commit();
    }
    float of_x[2], of_w[8];
    load_scales(of_x, x_scales + group, token, m, groups);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      of_w[j] = __ldg(w_scales + (i64)group * n_pad + output + j / 2 * 8 + j % 2);
    }
    int dots[4][4];
    multiply_stage(dots, stages + group % MANY_STAGES * STAGE_BYTES);
    bool closes = group + 1 == end;
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float scale = __fmul_rn(of_x[i / 2], of_w[j * 2 + i % 2]);
        acc[j][i] = __fmaf_rn(__int2float_rn(dots[j][i]), scale, acc[j][i]);
        if (closes) {
          total[j][i] = close_shard(&trees[j][i], shard, acc[j][i]);
          acc[j][i] = 0.0f;
        }
      }
    }
    if (closes) end = shard_end(k, num_shards, ++shard);
  }
#pragma unroll
  for (int j = 0; j < 4; j++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int row = token + i / 2 * 8, column = output + j * 8 + i % 2;
      if (row < m && column < n) y[(i64)row * n + column] = total[j][i];
    }
  }
}
KERNEL_EXPORT(linear_q8_many);
