// Linear layers by the f32 rule: in a group of 128 inputs run order from 0 with fma, then acc = acc + group in run
// order over the groups of a shard; shards are joined by a balanced tree.
#include "common.cuh"
#include "shards.cuh"

// Groups whose sums of one round lie in shared memory.
#define F32_ROUND 16
#define F32_TOKENS 4
#define F32_WARPS 8

// w: (ceil(n / 32), k, 32), zero padded. x: (m, k). y: (m, n). num_shards: as for q8.
// Grid: (ceil(n / 32), ceil(m / 4)), blocks of 256. A lane owns an output, so that nothing is vectorised along the
// reduction; warps share the groups and leave their sums in one half of `sums`, which warp t adds up for token t while
// the next round goes to the other half.
extern "C" __global__ void __launch_bounds__(256)
linear_f32(float* y, const float* w, const float* x, int m, int n, int k, int num_shards) {
  __shared__ float sums[2][F32_ROUND][F32_TOKENS][32];
  int lane = threadIdx.x & 31, warp = threadIdx.x / 32, groups = (k + GROUP - 1) / GROUP;
  int first_token = blockIdx.y * F32_TOKENS, tokens = min(m - first_token, F32_TOKENS);
  const float* weights = w + (i64)blockIdx.x * k * 32 + lane;
  const float* rows[F32_TOKENS];
#pragma unroll
  for (int t = 0; t < F32_TOKENS; t++) {
    rows[t] = x + (i64)(first_token + min(t, tokens - 1)) * k;
  }
  ShardTree tree = {};
  float acc = 0.0f, total = 0.0f;
  int shard = 0, end = shard_end(k, num_shards, 0);
  for (int first = 0; first < groups; first += F32_ROUND) {
    int half = first / F32_ROUND & 1, last = min(groups, first + F32_ROUND);
    for (int group = first + warp; group < last; group += F32_WARPS) {
      float own[F32_TOKENS] = {};
      int group_end = min(k, (group + 1) * GROUP);
#pragma unroll 8
      for (int i = group * GROUP; i < group_end; i++) {
        float weight = __ldg(weights + (i64)i * 32);
#pragma unroll
        for (int t = 0; t < F32_TOKENS; t++) own[t] = __fmaf_rn(__ldg(rows[t] + i), weight, own[t]);
      }
#pragma unroll
      for (int t = 0; t < F32_TOKENS; t++) sums[half][group - first][t][lane] = own[t];
    }
    __syncthreads();
    if (warp >= tokens) continue;
    for (int group = first; group < last; group++) {
      acc = __fadd_rn(acc, sums[half][group - first][warp][lane]);
      if (group + 1 == end) {
        total = close_shard(&tree, shard, acc);
        acc = 0.0f;
        end = shard_end(k, num_shards, ++shard);
      }
    }
  }
  int output = blockIdx.x * 32 + lane;
  if (warp < tokens && output < n) y[(i64)(first_token + warp) * n + output] = total;
}
KERNEL_EXPORT(linear_f32);
