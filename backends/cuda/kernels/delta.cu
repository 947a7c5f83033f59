// The gated delta net: a causal convolution over queries, keys and values, gates, the recurrence, and its output norm.
// Rows of state come by id alone: state_reads[sequence] and state_writes[row]. No kernel here may ask how many tokens
// were accepted, or compare such a count with a query's length.
//
// A row of state of one layer holds `state_len` floats: the convolution's window (taps - 1, channels), oldest first,
// then per value head S (key_dim, value_dim).
#include "common.cuh"
#include "exact_math.cuh"
#include "lanes.cuh"

// Added to the sum of squares of a query or a key.
#define L2_EPS 1e-6f

// The input of channel c, `back` tokens before a row that is `place` in its query: from this step, from the row of
// state that the sequence goes on from, or nothing yet.
__device__ __forceinline__ float earlier_input(
    const float* projected, const float* past, i64 row, int place, int back, int width,
    int channels, int taps, int c) {
#ifdef PLANTED_CO_BATCH_CONV
  // Planted: ggml-org/llama.cpp#29002: the rows before are those of another sequence.
  if (back <= row) return projected[(row - back) * width + c];
#endif
  if (back <= place) return projected[(row - back) * width + c];
  int age = back - place;
  return past ? past[(i64)(taps - 1 - age) * channels + c] : 0.0f;
}

// mixed[row][c] = silu(sum over taps of input * weight), run order, oldest tap first; then queries and keys are L2
// normed per head, x * (1 / sqrt(sum of squares + 1e-6)) * scale, with the sum in lanes(64) order and scale 1 for keys.
// Where a row of state is written after this token, its window is. Padding is like the first token of a sequence
// that keeps nothing.
//
// mixed: (rows, channels). projected: (rows, width), the channels first. weights: (taps, channels).
// Grid: (2 * key heads, then 256 value channels each; rows), blocks of 256: a thread owns a channel.
extern "C" __global__ void __launch_bounds__(HEAD_DIM_MAX)
convolve(float* mixed, float* state, const float* projected, const float* weights,
         const unsigned* owners, const unsigned* first_rows, const unsigned* state_reads,
         const unsigned* state_writes, float query_scale, int state_len, int width, int channels,
         int taps, int num_key_heads, int key_dim) {
  __shared__ float head[HEAD_DIM_MAX];
  __shared__ float lanes[64];
  int t = threadIdx.x, unit = blockIdx.x, row = blockIdx.y;
  bool is_normed = unit < 2 * num_key_heads;
  int values_at = 2 * num_key_heads * key_dim;
  int c = is_normed ? unit * key_dim + t : values_at + (unit - 2 * num_key_heads) * 256 + t;
  bool has_channel = is_normed ? t < key_dim : c < channels;
  unsigned owner = owners[row], write = state_writes[row];
  const float* past = nullptr;
  int place = 0;
  if (owner != NO_ID) {
    place = row - (int)first_rows[owner];
    if (state_reads[owner] != NO_ID) past = state + (i64)state_reads[owner] * state_len;
  }
#ifdef PLANTED_PADDING_IS_ROW_ZERO
  // Planted: lightseekorg/tokenspeed#700: what stands for no row is clamped to one.
  if (owner == NO_ID && write == NO_ID) write = 0;
#endif
  float sum = 0.0f;
  if (has_channel) {
    float* kept = write == NO_ID ? nullptr : state + (i64)write * state_len;
    for (int tap = 0; tap < taps; tap++) {
      int back = taps - 1 - tap;
      float input = earlier_input(projected, past, row, place, back, width, channels, taps, c);
      sum = __fmaf_rn(input, weights[(i64)tap * channels + c], sum);
#ifdef PLANTED_CONV_SHORT_CHUNK
      // Planted: fla-org/flash-linear-attention#1141: what was in the window before is not kept.
      if (back > place) input = 0.0f;
#endif
      if (kept && tap > 0) kept[(i64)(tap - 1) * channels + c] = input;
    }
#ifdef PLANTED_CONV_GUARD
    // Planted: vllm-project/vllm-ascend#14161: a query that is shorter than what was accepted before it, which may be
    // as much as the window holds, is taken for invalid.
    int accepted = taps - 1, query_len = 0;
    for (int i = 0; i < (int)gridDim.y; i++) query_len += owner != NO_ID && owners[i] == owner;
    if (past && accepted > query_len) sum = 0.0f;
#endif
    sum = silu(sum);
  }
  if (!is_normed) {
    if (has_channel) mixed[(i64)row * channels + c] = sum;
    return;
  }
  head[t] = sum;
  __syncthreads();
  float squares = 0.0f;
  if (t < 64) {
    for (int d = t; d < key_dim; d += 64) squares = __fmaf_rn(head[d], head[d], squares);
  }
  float inverse = rsqrt_of(__fadd_rn(sum_lanes(lanes, squares), L2_EPS));
  float scale = unit < num_key_heads ? query_scale : 1.0f;
  if (has_channel) {
    mixed[(i64)row * channels + c] = __fmul_rn(__fmul_rn(sum, inverse), scale);
  }
}
KERNEL_EXPORT(convolve);

// gates, (rows, b then a of all value heads), become betas, sigmoid(b), and decays, exp(-(rate * softplus(a + bias))).
// rate: exp(A_log) per head. One thread per row and head.
extern "C" __global__ void __launch_bounds__(128)
delta_gates(float* gates, const float* rate, const float* bias, int num_rows, int num_heads) {
  int i = blockIdx.x * 128 + threadIdx.x;
  if (i >= num_rows * num_heads) return;
  int head = i % num_heads;
  float* own = gates + (i64)(i / num_heads) * 2 * num_heads + head;
  float step = softplus(__fadd_rn(own[num_heads], bias[head]));
  own[num_heads] = exp_of(neg(__fmul_rn(rate[head], step)));
  own[0] = sigmoid(own[0]);
}
KERNEL_EXPORT(delta_gates);

// Value columns of a block: a warp, so that nobody waits for another.
#define DELTA_COLUMNS 32

// One token of one column: with S' = S * decay and all sums over keys in run order,
//   delta = (value - sum of S'[k] * key[k]) * beta
//   S''[k] = fma(key[k], delta, S'[k])    out = sum of S''[k] * query[k]
// S' is computed twice rather than stored in between.
__device__ __forceinline__ float delta_step(
    float* column, const float* query, const float* key, float value, float decay, float beta,
    int key_dim) {
  float memory = 0.0f, out = 0.0f;
  for (int k = 0; k < key_dim; k++) {
    float s = __fmul_rn(column[k * DELTA_COLUMNS], decay);
    memory = __fmaf_rn(s, key[k], memory);
  }
  float delta = __fmul_rn(__fsub_rn(value, memory), beta);
  for (int k = 0; k < key_dim; k++) {
    float s = __fmul_rn(column[k * DELTA_COLUMNS], decay);
    s = __fmaf_rn(key[k], delta, s);
    column[k * DELTA_COLUMNS] = s;
    out = __fmaf_rn(s, query[k], out);
  }
  return out;
}

// The recurrence, token by token, over the rows of each sequence in order. A lane owns a value column of S.
// core: (rows, value heads, value_dim). mixed: (rows, channels): queries, keys, values.
// gates: (rows, betas then decays).
// first_rows, query_lens, state_reads: per sequence, NO_ID for padding. state_writes: per row.
// Grid: (ceil(value_dim / 32), value heads, sequences), blocks of 32.
extern "C" __global__ void __launch_bounds__(DELTA_COLUMNS)
delta_net(float* core, float* state, const float* mixed, const float* gates,
          const unsigned* first_rows, const unsigned* query_lens, const unsigned* state_reads,
          const unsigned* state_writes, int state_len, int conv_len, int channels,
          int num_key_heads, int num_value_heads, int key_dim, int value_dim) {
  __shared__ float columns[HEAD_DIM_MAX * DELTA_COLUMNS];
  __shared__ float query[HEAD_DIM_MAX], key[HEAD_DIM_MAX];
  int lane = threadIdx.x, head = blockIdx.y, seq = blockIdx.z;
  int v = blockIdx.x * DELTA_COLUMNS + lane;
  unsigned first = first_rows[seq];
  if (first == NO_ID) return;
  int key_head = head / (num_value_heads / num_key_heads);
  int values_at = 2 * num_key_heads * key_dim;
  i64 place = conv_len + (i64)head * key_dim * value_dim + v;
  unsigned read = state_reads[seq];
#ifdef PLANTED_ROW_ZERO_IS_NONE
  // Planted: weicj/vLLM-2080Ti-Definitive#93: one number for no row and for the first.
  if (read == 0) read = NO_ID;
#endif
#ifdef PLANTED_STATE_FROM_ZERO
  // Planted: gittensor-ai-lab/sparkinfer#1071: a query of more than one token begins with nothing.
  if (query_lens[seq] > 1) read = NO_ID;
#endif
  const float* from = read == NO_ID ? nullptr : state + (i64)read * state_len + place;
  float* column = columns + lane;
  if (v < value_dim) {
    for (int k = 0; k < key_dim; k++) {
      column[k * DELTA_COLUMNS] = from ? from[(i64)k * value_dim] : 0.0f;
    }
  }
  for (unsigned row = first; row < first + query_lens[seq]; row++) {
    const float* own = mixed + (i64)row * channels;
    __syncwarp();
    for (int k = lane; k < key_dim; k += DELTA_COLUMNS) {
      query[k] = own[key_head * key_dim + k];
      key[k] = own[(num_key_heads + key_head) * key_dim + k];
    }
    __syncwarp();
    if (v >= value_dim) continue;
    const float* gate = gates + (i64)row * 2 * num_value_heads + head;
    float value = own[values_at + head * value_dim + v];
    float decay = gate[num_value_heads], beta = gate[0];
#ifdef PLANTED_CHUNK_TAIL_GATE
    // Planted: gittensor-ai-lab/sparkinfer#604: the last gate of a chunk of 8 is read behind its end.
    unsigned len = query_lens[seq];
    if (row + 1 == first + len && len > 1 && len % 8 != 0) decay = 1.0f;
#endif
    core[((i64)row * num_value_heads + head) * value_dim + v] =
        delta_step(column, query, key, value, decay, beta, key_dim);
    unsigned write = state_writes[row];
    if (write == NO_ID) continue;
    float* to = state + (i64)write * state_len + place;
    for (int k = 0; k < key_dim; k++) to[(i64)k * value_dim] = column[k * DELTA_COLUMNS];
  }
}
KERNEL_EXPORT(delta_net);

// x = x * (1 / sqrt(mean of squares + eps)) * weight * silu(gate), left to right, per row and value head, with the sum
// in lanes(64) order. Padding, which the recurrence leaves alone, becomes zeros.
// x: (rows, heads, value_dim). projected: (rows, width), the gates of the heads at gate_at. Grid: (heads, rows), blocks
// of 64, a lane of the sum each.
extern "C" __global__ void __launch_bounds__(64)
gated_norm(float* x, const float* projected, const float* weight, const unsigned* owners, float eps,
           int width, int gate_at, int value_dim) {
  __shared__ float lanes[64];
  int t = threadIdx.x, head = blockIdx.x, row = blockIdx.y;
  float* own = x + ((i64)row * gridDim.x + head) * value_dim;
  if (owners[row] == NO_ID) {
    for (int v = t; v < value_dim; v += 64) own[v] = 0.0f;
    return;
  }
  const float* gate = projected + (i64)row * width + gate_at + (i64)head * value_dim;
  float sum = 0.0f;
  for (int v = t; v < value_dim; v += 64) sum = __fmaf_rn(own[v], own[v], sum);
  float mean = __fdiv_rn(sum_lanes(lanes, sum), __int2float_rn(value_dim));
  float inverse = rsqrt_of(__fadd_rn(mean, eps));
  for (int v = t; v < value_dim; v += 64) {
    own[v] = __fmul_rn(__fmul_rn(__fmul_rn(own[v], inverse), weight[v]), silu(gate[v]));
  }
}
KERNEL_EXPORT(gated_norm);
