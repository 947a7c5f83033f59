// Queries, keys and values of an attention layer, made ready: head norms, rotation, and a place in the cache.
#include "common.cuh"
#include "exact_math.cuh"
#include "lanes.cuh"

// Per (row, head): x * (1 / sqrt(mean of squares + eps)) * weight where there is a weight, with the sum in lanes(64)
// order; then elements i and i + pairs are rotated: fma(x1, cos, -(x2 * sin)), fma(x2, cos, x1 * sin).
// Queries are written back; keys and values go to the row's slot. A row without a slot is left alone.
//
// projected: (rows, width): per query head its query (and gate: query_stride floats a head), then keys, then values.
// cos, sin: (positions, pairs). slots: 64 * block + offset per row.
// keys: (block, kv head, head_dim, 64) and values: (block, kv head, 64, head_dim), of this layer.
// Grid: (heads + kv heads, rows); blocks of 64, a lane of the sum each.
extern "C" __global__ void __launch_bounds__(64)
place_kv(float* projected, float* keys, float* values, const unsigned* positions,
         const unsigned* slots, const float* cos, const float* sin, const float* query_norm,
         const float* key_norm, float eps, int width, int num_heads, int num_kv_heads, int head_dim,
         int query_stride, int pairs) {
  __shared__ float head[HEAD_DIM_MAX];
  __shared__ float lanes[64];
  int t = threadIdx.x, row = blockIdx.y, which = blockIdx.x;
  unsigned slot = slots[row];
#ifdef PLANTED_PADDING_WRITES_SLOT
  // What stands for no slot is clamped to one.
  if (slot == NO_ID) slot = 0;
#endif
  if (slot == NO_ID) return;
  bool is_query = which < num_heads;
  int kv_head = which - num_heads;
  int at = is_query ? which * query_stride : num_heads * query_stride + kv_head * head_dim;
  float* own = projected + (i64)row * width + at;
  const float* weight = is_query ? query_norm : key_norm;
  float sum = 0.0f;
  for (int d = t; d < head_dim; d += 64) {
    head[d] = own[d];
    sum = __fmaf_rn(head[d], head[d], sum);
  }
  if (weight) {
    float mean = __fdiv_rn(sum_lanes(lanes, sum), __int2float_rn(head_dim));
    float inverse = rsqrt_of(__fadd_rn(mean, eps));
    for (int d = t; d < head_dim; d += 64) {
      head[d] = __fmul_rn(__fmul_rn(head[d], inverse), weight[d]);
    }
  }
  __syncthreads();
  i64 angle = (i64)positions[row] * pairs;
#ifdef PLANTED_PADDING_WRITES_SLOT
  if (positions[row] == NO_ID) angle = 0;
#endif
  const float* row_cos = cos + angle;
  const float* row_sin = sin + angle;
  i64 block = slot / BLOCK_LEN;
#ifdef PLANTED_PAGE_INDEX_WRAPS
  // Planted: flashinfer-ai/flashinfer#3136.
  block = block & 3;
#endif
  i64 page = (block * num_kv_heads + kv_head) * head_dim * BLOCK_LEN;
  int offset = slot % BLOCK_LEN;
  for (int d = t; d < head_dim; d += 64) {
    float x = head[d];
    if (d < pairs) {
      float other = head[d + pairs];
      x = __fmaf_rn(x, row_cos[d], neg(__fmul_rn(other, row_sin[d])));
    } else if (d < 2 * pairs) {
      float other = head[d - pairs];
      x = __fmaf_rn(x, row_cos[d - pairs], __fmul_rn(other, row_sin[d - pairs]));
    }
    if (is_query) {
      own[d] = x;
    } else {
      keys[page + (i64)d * BLOCK_LEN + offset] = x;
      values[page + (i64)offset * head_dim + d] = own[num_kv_heads * head_dim + d];
    }
  }
}
KERNEL_EXPORT(place_kv);
