// From a row of logits to one drawn token, in fixed point: backends/numerics/src/sampler.rs on the device. One block
// per scored position; nothing is decided by the order of a float sum.
#include "common.cuh"
#include "rank.cuh"

// 1.0 in the fixed point of weights, as a float.
#define ONE 4294967296.0f

// How often a token has occurred, by the planner's account. Each token is listed at most once.
struct TokenCount {
  unsigned token, in_prompt, output;
};

struct TokenBias {
  unsigned token;
  float bias;
};

// The lists that DrawParams name parts of.
struct DrawLists {
  const TokenCount* counts;
  const TokenBias* biases;
  // Rows of the step, and the token of each row.
  const unsigned* extras;
  const unsigned* tokens;
};

// What the threads of a block agree on while they edit a row.
struct Edits {
  unsigned unknown, not_finite;
};

// How often a token is among the extra rows of a position.
__device__ __forceinline__ unsigned count_extras(
    const DrawParams& params, const DrawLists& lists, unsigned token) {
  unsigned count = 0;
  for (unsigned i = 0; i < params.num_extras; i++) {
    count += lists.tokens[lists.extras[params.extras_at + i]] == token;
  }
  return count;
}

// Step 1 for one token.
__device__ __forceinline__ float penalise(
    const DrawParams& params, float logit, bool in_prompt, unsigned output) {
  if (in_prompt || output > 0) {
    float r = params.repetition_penalty;
    logit = logit > 0.0f ? __fdiv_rn(logit, r) : __fmul_rn(logit, r);
  }
  logit = __fmaf_rn(neg(params.frequency_penalty), __int2float_rn((int)output), logit);
  if (output > 0) logit = __fsub_rn(logit, params.presence_penalty);
  return logit;
}

// Notes a token that is not there, or gives its place in a row.
__device__ __forceinline__ bool is_known(unsigned token, int vocab, Edits* edits) {
  if (token < (unsigned)vocab) return true;
  atomicExch(&edits->unknown, 1u);
  return false;
}

// Step 1 over the lists of a position. Every token is written by one thread.
__device__ __forceinline__ void penalise_row(
    const DrawParams& params, const DrawLists& lists, float* row, int vocab, Edits* edits) {
  const TokenCount* counts = lists.counts + params.counts_at;
  for (unsigned i = threadIdx.x; i < params.num_counts; i += RANK_THREADS) {
    TokenCount count = counts[i];
    if (!is_known(count.token, vocab, edits)) continue;
    unsigned output = count.output + count_extras(params, lists, count.token);
    row[count.token] = penalise(params, row[count.token], count.in_prompt != 0, output);
  }
  for (unsigned i = threadIdx.x; i < params.num_extras; i += RANK_THREADS) {
    unsigned token = lists.tokens[lists.extras[params.extras_at + i]];
    bool is_first = is_known(token, vocab, edits);
    for (unsigned j = 0; j < i && is_first; j++) {
      is_first = lists.tokens[lists.extras[params.extras_at + j]] != token;
    }
    for (unsigned j = 0; j < params.num_counts && is_first; j++) {
      is_first = counts[j].token != token;
    }
    if (!is_first) continue;
    row[token] = penalise(params, row[token], false, count_extras(params, lists, token));
  }
}

// Step 2: biases in the order given; of those of one token the thread of the first adds all.
__device__ __forceinline__ void bias_row(
    const DrawParams& params, const DrawLists& lists, float* row, int vocab, Edits* edits) {
  const TokenBias* biases = lists.biases + params.bias_at;
  for (unsigned i = threadIdx.x; i < params.num_bias; i += RANK_THREADS) {
    unsigned token = biases[i].token;
    bool is_first = is_known(token, vocab, edits);
    for (unsigned j = 0; j < i && is_first; j++) is_first = biases[j].token != token;
    if (!is_first) continue;
    float logit = row[token];
    for (unsigned j = i; j < params.num_bias; j++) {
      if (biases[j].token == token) logit = __fadd_rn(logit, biases[j].bias);
    }
    row[token] = logit;
  }
}

// Notes the lowest token that is not finite among all of a row.
__device__ __forceinline__ void find_not_finite(const float* row, int vocab, Edits* edits) {
  for (int i = threadIdx.x; i < vocab; i += RANK_THREADS) {
    if (!is_finite(row[i])) atomicMin(&edits->not_finite, (unsigned)i);
  }
}

// The fixed-point weight of a logit: floor(exp((l - max) / T) * 2^32). exp(-23) * 2^32 is below 1.
__device__ __forceinline__ u64 weigh(float logit, float max, float temperature) {
  float x = __fdiv_rn(__fsub_rn(logit, max), temperature);
  if (x < -23.0f) return 0;
  float term = __fmul_rn(exp_of(x), ONE);
  return term >= 1.0f ? (u64)term : 0;
}

// A row on its way to a draw: what may still be drawn is at or above `cut` in the ranking, and of weight `least` at
// least.
struct Weighed {
  const float* row;
  int vocab;
  float max, temperature;
  u64 cut, least;

  __device__ __forceinline__ u64 key(int i) const { return rank_key(row[i], (unsigned)i); }
  __device__ __forceinline__ u64 weight(int i, u64 key) const {
    if (key < cut) return 0;
    u64 own = weigh(row[i], max, temperature);
    return own >= least ? own : 0;
  }
  // What threads of one id each, from `first` on, have of the weight of [first, end).
  __device__ __forceinline__ u64 part(int first, int end, int step) const {
    u64 sum = 0;
    for (int i = first; i < end; i += step) sum += weight(i, key(i));
    return sum;
  }
};

// Steps 5 to 7: top-k, top-p, min-p.
__device__ __forceinline__ void narrow(
    RankShared* shared, Weighed* weighed, const DrawParams& params) {
  const Weighed from = *weighed;
  auto key = [&](int i) { return from.key(i); };
  if (params.top_k > 0 && params.top_k < (unsigned)from.vocab) {
    auto one = [&](int i, u64) -> u64 { return from.row[i] > negative_infinity(); };
    u64 own = 0;
    for (int i = threadIdx.x; i < from.vocab; i += RANK_THREADS) own += one(i, 0);
    if (sum_of_block(shared, own) > params.top_k) {
      weighed->cut = least_that_stays(shared, from.vocab, params.top_k, key, one);
#ifdef PLANTED_TOP_K_KEEPS_TIES
      // Planted: vllm-project/vllm#50979: whatever equals the last that stays, stays.
      weighed->cut &= ~0xffffffffull;
#endif
    }
  }
  if (params.top_p < (1ull << 32)) {
    const Weighed kept = *weighed;
    auto weight = [&](int i, u64 of) { return kept.weight(i, of); };
    u64 total = sum_of_block(shared, kept.part(threadIdx.x, kept.vocab, RANK_THREADS));
#ifdef PLANTED_TOP_P_OF_ALL
    // Planted: ml-explore/mlx-lm#388: the mass that top-k took away still counts.
    u64 most = total;
    total = sum_of_block(shared, from.part(threadIdx.x, from.vocab, RANK_THREADS));
#endif
    // The least sum s with s * 2^32 >= p * total; the first of the ranking always stays.
    u64 low = params.top_p * total, high = multiply_high(params.top_p, total);
    u64 goal = (high << 32 | low >> 32) + ((low & 0xffffffffull) != 0);
#ifdef PLANTED_TOP_P_OF_ALL
    goal = goal > most ? most : goal;
#endif
    weighed->cut = least_that_stays(shared, kept.vocab, goal > 0 ? goal : 1, key, weight);
  }
  if (params.min_p > weighed->least) weighed->least = params.min_p;
}

// The 64-bit Philox 4x32-10 draw of a seed at a position.
__device__ __forceinline__ u64 philox_draw(u64 seed, u64 position) {
  unsigned c0 = (unsigned)position, c1 = (unsigned)(position >> 32), c2 = 0, c3 = 0;
  unsigned k0 = (unsigned)seed, k1 = (unsigned)(seed >> 32);
  for (int round = 0; round < 10; round++) {
    u64 a = 0xd2511f53ull * c0, b = 0xcd9e8d57ull * c2;
    c0 = (unsigned)(b >> 32) ^ c1 ^ k0;
    c1 = (unsigned)b;
    c2 = (unsigned)(a >> 32) ^ c3 ^ k1;
    c3 = (unsigned)a;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
  return (u64)c0 | (u64)c1 << 32;
}

// Narrows [first, end) to the part in which the running sum by ascending id exceeds `target`, each warp adding up one
// of 16 parts.
__device__ __forceinline__ void choose_part(
    RankShared* shared, const Weighed& weighed, int* first, int* end, u64* target) {
  int warp = threadIdx.x / 32, each = (*end - *first + RANK_WARPS - 1) / RANK_WARPS;
  int from = min(*first + warp * each, *end), to = min(from + each, *end);
  u64 own = weighed.part(from + (threadIdx.x & 31), to, 32);
#pragma unroll
  for (int distance = 16; distance > 0; distance >>= 1) {
    own += __shfl_down_sync(FULL_WARP, own, distance);
  }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared->parts[warp] = own;
  __syncthreads();
  int part = 0;
  while (shared->parts[part] <= *target) *target -= shared->parts[part++];
  *first = min(*first + part * each, *end);
  *end = min(*first + each, *end);
}

// Step 8: the first token, by ascending id, at which the running sum of weights exceeds (u * total) >> 64.
__device__ __forceinline__ unsigned choose(
    RankShared* shared, const Weighed& weighed, u64 seed, u64 position) {
  u64 total = sum_of_block(shared, weighed.part(threadIdx.x, weighed.vocab, RANK_THREADS));
  u64 target = multiply_high(philox_draw(seed, position), total);
  int first = 0, end = weighed.vocab;
  while (end - first > RANK_WARPS) choose_part(shared, weighed, &first, &end, &target);
  for (int i = first; i < end; i++) {
    u64 own = weighed.weight(i, weighed.key(i));
    if (own > target) return (unsigned)i;
    target -= own;
  }
  return NO_ID;
}

// Steps 1 to 3: writes the row after penalties, biases and mask to `edited`, if there are any of these. Returns the row
// to go on with, or why there is none in `status`.
__device__ __forceinline__ const float* edit_row(
    const DrawParams& params, const DrawLists& lists, const float* raw, float* edited,
    const unsigned* mask, int vocab, Edits* edits, unsigned* status) {
  if (threadIdx.x == 0) *edits = {0, NO_ID};
  __syncthreads();
  find_not_finite(raw, vocab, edits);
  __syncthreads();
  if (edits->not_finite != NO_ID) {
    *status = NOT_FINITE;
    return raw;
  }
  bool penalises = params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f ||
                   params.repetition_penalty != 1.0f;
  penalises = penalises && params.num_counts + params.num_extras > 0;
  if (!penalises && params.num_bias == 0 && !mask) return raw;
  for (int i = threadIdx.x; i < vocab; i += RANK_THREADS) edited[i] = raw[i];
  __syncthreads();
  if (penalises) penalise_row(params, lists, edited, vocab, edits);
  __syncthreads();
  bias_row(params, lists, edited, vocab, edits);
  __syncthreads();
  find_not_finite(edited, vocab, edits);
  __syncthreads();
  if (edits->unknown || edits->not_finite != NO_ID) {
    *status = edits->unknown ? UNKNOWN_TOKEN : NOT_FINITE;
    return raw;
  }
  for (int i = threadIdx.x; mask && i < vocab; i += RANK_THREADS) {
    if (!(mask[i / 32] >> (i % 32) & 1)) edited[i] = negative_infinity();
  }
  __syncthreads();
  return edited;
}

// drawn[i] and statuses[i] of each position: the token and DRAWN, or NO_ID and why there is none; NO_ID and DRAWN for
// padding. logits: (rows, vocab). edited: (positions, vocab), to work in. masks: (rows, ceil(vocab / 32)), token
// 32 w + b in bit b of word w. tokens: per row of the step, what is computed there. Grid: (positions).
extern "C" __global__ void __launch_bounds__(RANK_THREADS, 1)
draw(unsigned* drawn, unsigned* statuses, const DrawParams* params, const float* logits,
     float* edited, const TokenCount* counts, const TokenBias* biases, const unsigned* extras,
     const unsigned* tokens, const unsigned* masks, int vocab) {
  __shared__ RankShared shared;
  __shared__ Edits edits;
  const DrawParams own = params[blockIdx.x];
  if (own.row == NO_ID) {
    if (threadIdx.x == 0) drawn[blockIdx.x] = NO_ID;
    if (threadIdx.x == 0) statuses[blockIdx.x] = DRAWN;
    return;
  }
  const DrawLists lists = {counts, biases, extras, tokens};
  const unsigned* mask =
      own.mask == NO_ID ? nullptr : masks + (i64)own.mask * ((vocab + 31) / 32);
  unsigned status = DRAWN, token = NO_ID;
  const float* row = edit_row(own, lists, logits + (i64)own.row * vocab,
                              edited + (i64)blockIdx.x * vocab, mask, vocab, &edits, &status);
  if (status == DRAWN) {
    u64 highest = 0;
    for (int i = threadIdx.x; i < vocab; i += RANK_THREADS) {
      u64 key = rank_key(row[i], (unsigned)i);
      highest = key > highest ? key : highest;
    }
    highest = max_of_block(&shared, highest);
    float most = key_logit(highest);
    if (most == negative_infinity()) {
      status = NOTHING_ALLOWED;
    } else if (own.temperature == 0.0f) {
      token = key_token(highest);
    } else {
      Weighed weighed = {row, vocab, most, own.temperature, 0, 1};
      narrow(&shared, &weighed, own);
      token = choose(&shared, weighed, own.seed, own.position);
    }
  }
  if (threadIdx.x == 0) {
    drawn[blockIdx.x] = token;
    statuses[blockIdx.x] = status;
  }
}
KERNEL_EXPORT(draw);
