// The one ranking of the sampler: higher logit first, lower token id first among equals. Ranks are found by radix
// descent over a unique 64-bit key; all sums are of integers, hence exact in any order.
#include "exact_math.cuh"

// Threads of a block that draws or ranks.
#define RANK_THREADS 512
#define RANK_WARPS (RANK_THREADS / 32)
// Buckets of one digit of a key: 11 bits at most.
#define BUCKETS 2048

// Why nothing was drawn: as DrawError of backends/numerics/src/sampler.rs.
#define DRAWN 0u
#define NOT_FINITE 1u
#define NOTHING_ALLOWED 2u
#define UNKNOWN_TOKEN 3u

// How the token of one scored position is drawn: DrawParams of backends/cuda/src/ops/draw.rs.
struct DrawParams {
  u64 seed;
  // Of the drawn token in its sequence.
  u64 position;
  // In units of 2^-32: the floor of top_p, the ceiling of min_p.
  u64 top_p, min_p;
  float temperature, frequency_penalty, presence_penalty, repetition_penalty;
  unsigned top_k;
  // The row of logits; NO_ID for padding.
  unsigned row;
  // The row of the masks; NO_ID for none.
  unsigned mask;
  // Log-probabilities that are wanted besides the drawn token's; NO_ID for none at all.
  unsigned top_logprobs;
  // Ranges of the lists of counts, of rows whose tokens count as output, and of biases.
  unsigned counts_at, num_counts, extras_at, num_extras, bias_at, num_bias;
};
static_assert(sizeof(DrawParams) == 88, "DrawParams has another layout than on the host");

// What a block shares while it ranks.
struct RankShared {
  u64 buckets[BUCKETS];
  u64 parts[RANK_WARPS];
  u64 result, before;
};

// Greater for a token that ranks earlier: the logit's encoding made monotone in the upper half, both zeros being equal,
// and the complement of the id in the lower.
__device__ __forceinline__ u64 rank_key(float logit, unsigned token) {
  unsigned bits = __float_as_uint(__fadd_rn(logit, 0.0f));
  unsigned ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
  return (u64)ordered << 32 | (u64)(~token);
}

__device__ __forceinline__ unsigned key_token(u64 key) { return ~(unsigned)key; }

__device__ __forceinline__ float key_logit(u64 key) {
  unsigned ordered = (unsigned)(key >> 32);
  return __uint_as_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
}

// The upper half of a 128-bit product.
__device__ __forceinline__ u64 multiply_high(u64 a, u64 b) {
  u64 a_low = a & 0xffffffffull, a_high = a >> 32, b_low = b & 0xffffffffull, b_high = b >> 32;
  u64 middle = a_high * b_low + (a_low * b_low >> 32);
  u64 other = a_low * b_high + (middle & 0xffffffffull);
  return a_high * b_high + (middle >> 32) + (other >> 32);
}

// The sum of what all threads of a block bring, or the greatest of it. Every thread gets it.
__device__ __forceinline__ u64 sum_of_block(RankShared* shared, u64 own) {
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1) {
    own += __shfl_down_sync(FULL_WARP, own, distance);
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared->parts[threadIdx.x / 32] = own;
  __syncthreads();
  u64 sum = 0;
  for (int i = 0; i < RANK_WARPS; i++) sum += shared->parts[i];
  return sum;
}

__device__ __forceinline__ u64 max_of_block(RankShared* shared, u64 own) {
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1) {
    u64 other = __shfl_down_sync(FULL_WARP, own, distance);
    own = other > own ? other : own;
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared->parts[threadIdx.x / 32] = own;
  __syncthreads();
  u64 most = 0;
  for (int i = 0; i < RANK_WARPS; i++) most = shared->parts[i] > most ? shared->parts[i] : most;
  return most;
}

// By the first warp: the first bucket, from the top of `count`, at which the running sum reaches the goal, which it
// must do. Leaves the bucket in `result` and the sum before it in `before`.
__device__ __forceinline__ void find_bucket(RankShared* shared, int count, u64 goal) {
  int lane = threadIdx.x & 31, each = count / 32, top = count - 1 - lane * each;
  u64 own = 0;
  for (int i = 0; i < each; i++) own += shared->buckets[top - i];
  u64 sum = own;
#pragma unroll
  for (int distance = 1; distance < 32; distance <<= 1) {
    u64 other = __shfl_up_sync(FULL_WARP, sum, distance);
    if (lane >= distance) sum += other;
  }
  u64 before = sum - own;
  if (before < goal && sum >= goal) {
    int bucket = top;
    while (before + shared->buckets[bucket] < goal) before += shared->buckets[bucket--];
    shared->result = (u64)bucket;
    shared->before = before;
  }
}

// The least key that stays: the first of the ranking at which the sum of values reaches `goal`, which is positive and
// no more than the sum of all. value(i, key) is what index i counts, 0 where it counts for nothing; what counts has a
// value of 1 at least. `keys(i)` is the key of index i of n.
template <class Key, class Value>
__device__ __forceinline__ u64 least_that_stays(
    RankShared* shared, int n, u64 goal, Key keys, Value value) {
  u64 prefix = 0;
  int left = 64;
  while (left > 0) {
    int bits = left == 42 || left == 10 ? 10 : 11, count = 1 << bits;
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += RANK_THREADS) shared->buckets[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += RANK_THREADS) {
      u64 key = keys(i);
      if (left < 64 && key >> left != prefix) continue;
      u64 own = value(i, key);
      if (own) atomicAdd(&shared->buckets[key >> (left - bits) & (count - 1)], own);
    }
    __syncthreads();
    if (threadIdx.x < 32) find_bucket(shared, count, goal);
    __syncthreads();
    u64 bucket = shared->result, before = shared->before;
    prefix = prefix << bits | bucket;
    left -= bits;
    // All of the bucket stays, and nothing behind it.
    if (before + shared->buckets[bucket] == goal) return left == 0 ? prefix : prefix << left;
    goal -= before;
  }
  return prefix;
}
