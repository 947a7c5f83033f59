// Softmax attention over blocks of 64 positions of the cache, per query and head:
//   s_j = (sum over d of q[d] * key[d][j], run order) * scale    m_b = max s_j    p_j = exp(s_j - m_b)
//   l_b = lanes(64) over p_j    a_b[d] = sum over j of p_j * value[j][d], run order
// and the merge in ascending order of blocks:
//   m' = max(m, m_b)  e = exp(m - m')  e_b = exp(m_b - m')  l = fma(l, e, l_b * e_b)  a[d] = fma(a[d], e, a_b[d] * e_b)
// out[d] = a[d] / l, times sigmoid(gate[d]) where there is a gate. A masked slot is never read: it may hold anything.
#include "common.cuh"
#include "exact_math.cuh"
#include "lanes.cuh"

// Query heads of one kv head that share a walk over the keys: a warp each in the softmax.
#define HEADS_MAX 8
#define ATTENTION_THREADS 256

// What is the same for all blocks of a launch.
struct Heads {
  int num_heads, num_kv_heads, head_dim;
  // Query heads per kv head, and tiles of at most HEADS_MAX of them.
  int group, tiles;
};

// The heads of one thread block, and what it holds in shared memory.
struct Tile {
  int kv_head, first_head, count, head_dim;
  float (*queries)[HEAD_DIM_MAX];
  // Scores, then what they become under the softmax; two halves, used in turn.
  float (*scores)[HEADS_MAX][BLOCK_LEN];
  // Per half and head: e and e_b of the merge, or m_b and l_b where blocks are not merged here.
  float (*factors)[HEADS_MAX][2];
};

// What has been merged so far of one head. Only lane 0 of the head's warp knows it.
struct Merged {
  float max, sum;
};

__device__ __forceinline__ Heads heads_of(int num_heads, int num_kv_heads, int head_dim) {
  int group = num_heads / num_kv_heads;
  return {num_heads, num_kv_heads, head_dim, group, (group + HEADS_MAX - 1) / HEADS_MAX};
}

__device__ __forceinline__ void choose_heads(Tile* tile, const Heads& heads, int which) {
  int of_group = which % heads.tiles * HEADS_MAX;
  tile->kv_head = which / heads.tiles;
  tile->first_head = tile->kv_head * heads.group + of_group;
  tile->count = min(HEADS_MAX, heads.group - of_group);
  tile->head_dim = heads.head_dim;
}

__device__ __forceinline__ void load_queries(const Tile& tile, const float* row, int stride) {
  for (int i = threadIdx.x; i < tile.count * tile.head_dim; i += ATTENTION_THREADS) {
    int h = i / tile.head_dim, d = i % tile.head_dim;
    tile.queries[h][d] = row[(i64)(tile.first_head + h) * stride + d];
  }
  __syncthreads();
}

// Merges m_b and l_b; returns the factors of what was and of what comes.
__device__ __forceinline__ void merge_block(
    Merged* merged, float block_max, float block_sum, float* e, float* e_b) {
  float most = merged->max > block_max ? merged->max : block_max;
  *e = exp_of(__fsub_rn(merged->max, most));
  *e_b = exp_of(__fsub_rn(block_max, most));
  merged->max = most;
  merged->sum = __fmaf_rn(merged->sum, *e, __fmul_rn(block_sum, *e_b));
}

// Dot products of Q queries, four rows of HEAD_DIM_MAX apart, with one key, whose dimensions lie BLOCK_LEN apart: run
// order over head_dim. Four dimensions of a query come in one read.
template <int Q>
__device__ __forceinline__ void score(
    float* sums, const float (*queries)[HEAD_DIM_MAX], const float* key, int head_dim) {
#pragma unroll
  for (int q = 0; q < Q; q++) sums[q] = 0.0f;
  int d = 0;
#pragma unroll 2
  for (; d + 4 <= head_dim; d += 4) {
    float keys[4];
#pragma unroll
    for (int i = 0; i < 4; i++) keys[i] = key[(d + i) * BLOCK_LEN];
#pragma unroll
    for (int q = 0; q < Q; q++) {
      float4 query = *reinterpret_cast<const float4*>(&queries[4 * q][d]);
      sums[q] = __fmaf_rn(query.x, keys[0], sums[q]);
      sums[q] = __fmaf_rn(query.y, keys[1], sums[q]);
      sums[q] = __fmaf_rn(query.z, keys[2], sums[q]);
      sums[q] = __fmaf_rn(query.w, keys[3], sums[q]);
    }
  }
  for (; d < head_dim; d++) {
#pragma unroll
    for (int q = 0; q < Q; q++) {
      sums[q] = __fmaf_rn(queries[4 * q][d], key[d * BLOCK_LEN], sums[q]);
    }
  }
}

// Scores, p and factors of one block of positions, of which [skipped, valid) exist. Ends with a barrier.
__device__ __forceinline__ void weigh_block(
    const Tile& tile, int half, const float* keys, float scale, int skipped, int valid,
    Merged* merged) {
  int t = threadIdx.x, j = t % BLOCK_LEN;
#ifdef PLANTED_NAN_PLUS_MINUS_INF
  // Planted: deepbeepmeep/Wan2GP#1628: all slots are read, and a mask is added.
  if (true) {
#else
  if (j >= skipped && j < valid) {
#endif
    // Threads of one position take every fourth head, two at most.
    int h = t / BLOCK_LEN;
    float sums[2];
    if (h + 4 < tile.count) {
      score<2>(sums, tile.queries + h, keys + j, tile.head_dim);
      tile.scores[half][h + 4][j] = __fmul_rn(sums[1], scale);
    } else if (h < tile.count) {
      score<1>(sums, tile.queries + h, keys + j, tile.head_dim);
    }
    if (h < tile.count) tile.scores[half][h][j] = __fmul_rn(sums[0], scale);
  }
  __syncthreads();
  int h = t / 32, lane = t & 31;
  if (h < tile.count) {
    float* scores = tile.scores[half][h];
    bool has_low = lane >= skipped && lane < valid;
    bool has_high = lane + 32 >= skipped && lane + 32 < valid;
    float low = has_low ? scores[lane] : negative_infinity();
    float high = has_high ? scores[lane + 32] : negative_infinity();
#ifdef PLANTED_NAN_PLUS_MINUS_INF
    if (!has_low) low = __fadd_rn(scores[lane], negative_infinity());
    if (!has_high) high = __fadd_rn(scores[lane + 32], negative_infinity());
    has_low = has_high = true;
#endif
    float most = high > low ? high : low;
#pragma unroll
    for (int distance = 16; distance > 0; distance >>= 1) {
      float other = __shfl_xor_sync(FULL_WARP, most, distance);
      most = other > most ? other : most;
    }
    low = has_low ? exp_of(__fsub_rn(low, most)) : 0.0f;
    high = has_high ? exp_of(__fsub_rn(high, most)) : 0.0f;
    scores[lane] = low;
    scores[lane + 32] = high;
    float sum = halve_lanes(low, high);
    float* factors = tile.factors[half][h];
    if (lane == 0 && merged) {
      merge_block(merged, most, sum, &factors[0], &factors[1]);
    } else if (lane == 0) {
      factors[0] = most;
      factors[1] = sum;
    }
  }
  __syncthreads();
}

// The values that a thread adds up: dimension `d` of heads `first`, `first + step`, ... of a tile.
struct Columns {
  int d, first, step;
  bool any;
};

__device__ __forceinline__ Columns columns_of(int head_dim) {
  int step = ATTENTION_THREADS / head_dim, first = threadIdx.x / head_dim;
  return {(int)threadIdx.x % head_dim, first, step, first < step};
}

// a_b[d] of this thread's columns, over positions [skipped, valid).
__device__ __forceinline__ void mix_block(
    float* mixed, const Tile& tile, const Columns& columns, int half, const float* values,
    int skipped, int valid) {
#pragma unroll
  for (int i = 0; i < HEADS_MAX; i++) mixed[i] = 0.0f;
#pragma unroll 4
  for (int j = skipped; j < valid; j++) {
    float value = values[j * tile.head_dim + columns.d];
#pragma unroll
    for (int i = 0; i < HEADS_MAX; i++) {
      int h = columns.first + i * columns.step;
      if (h < tile.count) mixed[i] = __fmaf_rn(tile.scores[half][h][j], value, mixed[i]);
    }
  }
}

__device__ __forceinline__ float finish(float acc, float sum, const float* gate, int d) {
  float out = __fdiv_rn(acc, sum);
  return gate ? __fmul_rn(out, sigmoid(gate[d])) : out;
}

// Where the positions of one block of a table begin and end for a query: positions [first, end) exist for it.
__device__ __forceinline__ void visible(int block, int first, int end, int* skipped, int* valid) {
  *skipped = min(max(first - block * BLOCK_LEN, 0), BLOCK_LEN);
  *valid = min(end - block * BLOCK_LEN, BLOCK_LEN);
}

#define TILE_IN_SHARED(tile)                                              \
  __shared__ __align__(16) float queries[HEADS_MAX][HEAD_DIM_MAX];        \
  __shared__ float scores[2][HEADS_MAX][BLOCK_LEN];                       \
  __shared__ float factors[2][HEADS_MAX][2];                              \
  Tile tile;                                                              \
  tile.queries = queries;                                                 \
  tile.scores = scores;                                                   \
  tile.factors = factors;

// projected: (rows, width), a query every query_stride floats, and its gate behind it where `gated`.
// out: (rows, heads, head_dim); zeros for padding. keys, values: of this layer, as place_kv writes them.
// owners: the sequence of each row. tables: (sequences, table_width) of blocks. num_skipped: positions at the beginning
// of a sequence that only their own query sees. Grid: (kv heads * tiles of 8 heads, rows), blocks of 256.
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
attention(float* out, const float* projected, const float* keys, const float* values,
          const unsigned* positions, const unsigned* owners, const unsigned* tables,
          int table_width, float scale, int width, int num_heads, int num_kv_heads, int head_dim,
          int query_stride, int gated, int num_skipped) {
  TILE_IN_SHARED(tile)
  Heads heads = heads_of(num_heads, num_kv_heads, head_dim);
  choose_heads(&tile, heads, blockIdx.x);
  int row = blockIdx.y;
  Columns columns = columns_of(head_dim);
  float* to = out + ((i64)row * num_heads + tile.first_head) * head_dim;
  unsigned owner = owners[row];
  if (owner == NO_ID) {
#ifdef PLANTED_PADDING_LEFT_UNWRITTEN
    // Planted: sgl-project/sglang#30974.
    return;
#endif
    for (int i = threadIdx.x; i < tile.count * head_dim; i += ATTENTION_THREADS) to[i] = 0.0f;
    return;
  }
  const float* own = projected + (i64)row * width;
  load_queries(tile, own, query_stride);
  __shared__ float sums[HEADS_MAX];
  Merged merged = {negative_infinity(), 0.0f};
  float acc[HEADS_MAX] = {}, mixed[HEADS_MAX];
  int end = positions[row] + 1, first = min(num_skipped, end - 1);
  for (int block = 0; block * BLOCK_LEN < end; block++) {
    int half = block & 1, skipped, valid;
    visible(block, first, end, &skipped, &valid);
    i64 page = (i64)tables[(i64)owner * table_width + block] * num_kv_heads + tile.kv_head;
    page *= head_dim * BLOCK_LEN;
    weigh_block(tile, half, keys + page, scale, skipped, valid, &merged);
    if (!columns.any) continue;
    mix_block(mixed, tile, columns, half, values + page, skipped, valid);
#pragma unroll
    for (int i = 0; i < HEADS_MAX; i++) {
      int h = columns.first + i * columns.step;
      if (h >= tile.count) break;
      acc[i] = __fmaf_rn(acc[i], factors[half][h][0], __fmul_rn(mixed[i], factors[half][h][1]));
    }
  }
  if ((threadIdx.x & 31) == 0) sums[threadIdx.x / 32] = merged.sum;
  __syncthreads();
  if (!columns.any) return;
#pragma unroll
  for (int i = 0; i < HEADS_MAX; i++) {
    int h = columns.first + i * columns.step;
    if (h >= tile.count) break;
    const float* gate = own + (i64)(tile.first_head + h) * query_stride + head_dim;
    to[h * head_dim + columns.d] = finish(acc[i], sums[h], gated ? gate : nullptr, columns.d);
  }
}
KERNEL_EXPORT(attention);

// The first half of `attention` with the blocks of a table side by side: m_b, l_b and a_b of each.
// maxima, sums: (rows, heads, blocks_max). mixed: (rows, heads, blocks_max, head_dim). What lies behind a row's last
// block is left alone. Grid: (kv heads * tiles of 8 heads, rows, blocks_max), blocks of 256.
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
attention_blocks(float* maxima, float* sums, float* mixed, const float* projected,
                 const float* keys, const float* values, const unsigned* positions,
                 const unsigned* owners, const unsigned* tables, int table_width, float scale,
                 int width, int num_heads, int num_kv_heads, int head_dim, int query_stride,
                 int num_skipped, int blocks_max) {
  TILE_IN_SHARED(tile)
  Heads heads = heads_of(num_heads, num_kv_heads, head_dim);
  choose_heads(&tile, heads, blockIdx.x);
  int row = blockIdx.y, block = blockIdx.z;
  unsigned owner = owners[row];
  if (owner == NO_ID) return;
  int end = positions[row] + 1, first = min(num_skipped, end - 1);
  if (block * BLOCK_LEN >= end) return;
  load_queries(tile, projected + (i64)row * width, query_stride);
  Columns columns = columns_of(head_dim);
  int skipped, valid;
  visible(block, first, end, &skipped, &valid);
  i64 page = (i64)tables[(i64)owner * table_width + block] * num_kv_heads + tile.kv_head;
  page *= head_dim * BLOCK_LEN;
  weigh_block(tile, 0, keys + page, scale, skipped, valid, nullptr);
  i64 place = (i64)row * num_heads + tile.first_head;
  if ((int)threadIdx.x < tile.count) {
    maxima[(place + threadIdx.x) * blocks_max + block] = factors[0][threadIdx.x][0];
    sums[(place + threadIdx.x) * blocks_max + block] = factors[0][threadIdx.x][1];
  }
  if (!columns.any) return;
  float own[HEADS_MAX];
  mix_block(own, tile, columns, 0, values + page, skipped, valid);
#pragma unroll
  for (int i = 0; i < HEADS_MAX; i++) {
    int h = columns.first + i * columns.step;
    if (h >= tile.count) break;
    mixed[((place + h) * blocks_max + block) * head_dim + columns.d] = own[i];
  }
}
KERNEL_EXPORT(attention_blocks);

// The second half: merges the blocks of each (row, head) in ascending order. Zeros for padding.
// Grid: (heads, rows); a thread owns a dimension, blocks of 256.
extern "C" __global__ void __launch_bounds__(HEAD_DIM_MAX)
attention_merge(float* out, const float* maxima, const float* sums, const float* mixed,
                const float* projected, const unsigned* positions, const unsigned* owners,
                int width, int num_heads, int head_dim, int query_stride, int gated,
                int blocks_max) {
  int head = blockIdx.x, row = blockIdx.y, d = threadIdx.x;
  if (d >= head_dim) return;
  i64 place = (i64)row * num_heads + head;
  float* to = out + place * head_dim;
  if (owners[row] == NO_ID) {
    to[d] = 0.0f;
    return;
  }
  Merged merged = {negative_infinity(), 0.0f};
  float acc = 0.0f;
  int blocks = positions[row] / BLOCK_LEN + 1;
  for (int block = 0; block < blocks; block++) {
    i64 at = place * blocks_max + block;
    float e, e_b;
    merge_block(&merged, maxima[at], sums[at], &e, &e_b);
    acc = __fmaf_rn(acc, e, __fmul_rn(mixed[at * head_dim + d], e_b));
  }
  const float* gate = projected + (i64)row * width + (i64)head * query_stride + head_dim;
  to[d] = finish(acc, merged.sum, gated ? gate : nullptr, d);
}
KERNEL_EXPORT(attention_merge);
