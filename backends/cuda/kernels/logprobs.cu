// Log-probabilities of raw rows of logits, before penalties, bias and mask:
// (l - max) - log(sum of exp(l - max)), left to right, with the sum in lanes(64) order.
#include "common.cuh"
#include "lanes.cuh"
#include "rank.cuh"

// The most tokens that can be listed besides the drawn one.
#define TOP_LOGPROBS_MAX 20
// Terms that are computed by all threads before 64 of them add: a multiple of 64.
#define TERMS 4096

// Writes a position's tokens that rank first to `top`, best first.
__device__ __forceinline__ void rank_first(
    RankShared* shared, u64* top, unsigned* found, const float* row, int vocab, int count) {
  auto key = [&](int i) { return rank_key(row[i], (unsigned)i); };
  auto one = [&](int, u64) -> u64 { return 1; };
  u64 cut = count < vocab ? least_that_stays(shared, vocab, (u64)count, key, one) : 0;
  if (threadIdx.x == 0) *found = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < vocab; i += RANK_THREADS) {
    u64 own = key(i);
    if (own >= cut) top[atomicAdd(found, 1u)] = own;
  }
  __syncthreads();
  // Few enough that each finds its place by counting those before it.
  u64 own = (int)threadIdx.x < count ? top[threadIdx.x] : 0;
  int place = 0;
  for (int i = 0; i < count; i++) place += top[i] > own;
  __syncthreads();
  if ((int)threadIdx.x < count) top[place] = own;
  __syncthreads();
}

// drawn_logprobs[i]: of the drawn token. top_tokens, top_logprobs: (positions, 20), best first, as many as are wanted,
// and NO_ID behind them. What nobody asked for, or nothing was drawn for, is left alone. logits: (rows, vocab), finite.
// Grid: (positions).
extern "C" __global__ void __launch_bounds__(RANK_THREADS, 1)
logprobs(float* drawn_logprobs, unsigned* top_tokens, float* top_logprobs, const unsigned* drawn,
         const DrawParams* params, const float* logits, int vocab) {
  __shared__ RankShared shared;
  __shared__ float terms[TERMS];
  __shared__ float lanes[64];
  __shared__ u64 top[TOP_LOGPROBS_MAX];
  __shared__ unsigned found;
  const DrawParams own = params[blockIdx.x];
  unsigned token = drawn[blockIdx.x];
  if (own.row == NO_ID || own.top_logprobs == NO_ID || token == NO_ID) return;
  const float* row = logits + (i64)own.row * vocab;
  int t = threadIdx.x;
  u64 highest = 0;
  for (int i = t; i < vocab; i += RANK_THREADS) {
    u64 key = rank_key(row[i], (unsigned)i);
    highest = key > highest ? key : highest;
  }
  float most = key_logit(max_of_block(&shared, highest));
  float sum = 0.0f;
  for (int first = 0; first < vocab; first += TERMS) {
    int len = min(vocab - first, TERMS);
    __syncthreads();
    for (int i = t; i < len; i += RANK_THREADS) {
      terms[i] = exp_of(__fsub_rn(row[first + i], most));
    }
    __syncthreads();
    for (int i = t; t < 64 && i < len; i += 64) sum = __fadd_rn(sum, terms[i]);
  }
  float log_sum = log_of(sum_lanes(lanes, sum));
  if (t == 0) drawn_logprobs[blockIdx.x] = __fsub_rn(__fsub_rn(row[token], most), log_sum);
  int count = min(min((int)own.top_logprobs, TOP_LOGPROBS_MAX), vocab);
  if (count > 0) rank_first(&shared, top, &found, row, vocab, count);
  if (t >= TOP_LOGPROBS_MAX) return;
  i64 at = (i64)blockIdx.x * TOP_LOGPROBS_MAX + t;
  top_tokens[at] = NO_ID;
  if (t >= count) return;
  top_tokens[at] = key_token(top[t]);
  top_logprobs[at] = __fsub_rn(__fsub_rn(row[key_token(top[t])], most), log_sum);
}
KERNEL_EXPORT(logprobs);
