// What a checkpoint's drafting head is given, and what it keeps: pairs of a token and of what was made of the token
// before it, in the model's own blocks.
#include "common.cuh"
#include "norm.cuh"

// Half 0 of pairs[row] is norm(embedded[row]), half 1 norm(what stands before the row):
//   a later row of its query: within[row - 1]
//   the first row: own[sequence] where there is `own`, else zeros at position 0, else kept at the slot of position - 1
// Zeros for padding. norm as in norm.cu; a sum that overflows makes what follows not finite, and so no draft.
// pairs: (rows, 2, n). embedded, within: (rows, n). own: (sequences, n). kept: (block, 64, n).
// tables: (sequences, table_width). Grid: (2, rows), blocks of 256.
extern "C" __global__ void __launch_bounds__(256)
mtp_enter(float* pairs, const float* embedded, const float* within, const float* own,
          const float* kept, const float* token_norm, const float* hidden_norm,
          const unsigned* positions, const unsigned* owners, const unsigned* first_rows,
          const unsigned* tables, int table_width, float eps, int n) {
  __shared__ float tile[NORM_TILE];
  __shared__ float lanes[64];
  int half = blockIdx.x, row = blockIdx.y;
  float* to = pairs + ((i64)row * 2 + half) * n;
  unsigned owner = owners[row];
  if (owner == NO_ID) {
    for (int i = threadIdx.x; i < n; i += 256) to[i] = 0.0f;
    return;
  }
  const float* from = embedded + (i64)row * n;
  const float* weight = half == 0 ? token_norm : hidden_norm;
  unsigned pos = positions[row];
  if (half == 1) {
    if ((unsigned)row != first_rows[owner]) {
      from = within + (i64)(row - 1) * n;
    } else if (own) {
      from = own + (i64)owner * n;
    } else if (pos == 0) {
      from = nullptr;
    } else {
      i64 block = tables[(i64)owner * table_width + (pos - 1) / BLOCK_LEN];
      from = kept + (block * BLOCK_LEN + (pos - 1) % BLOCK_LEN) * n;
    }
  }
  bool finite;
  float inverse = from ? inverse_rms(from, n, eps, tile, lanes, &finite)
                       : rsqrt_of(__fadd_rn(__fdiv_rn(0.0f, __int2float_rn(n)), eps));
  for (int i = threadIdx.x; i < n; i += 256) {
    to[i] = __fmul_rn(__fmul_rn(from ? from[i] : 0.0f, inverse), weight[i]);
  }
}
KERNEL_EXPORT(mtp_enter);

// kept[slots[row]] = x[row], where a row has a slot. x: (rows, n). kept: (block, 64, n). Grid: (rows, n / 256).
extern "C" __global__ void __launch_bounds__(256)
keep_rows(float* kept, const float* x, const unsigned* slots, int n) {
  unsigned slot = slots[blockIdx.x];
  int i = blockIdx.y * 256 + threadIdx.x;
  if (slot == NO_ID || i >= n) return;
  kept[(i64)slot * n + i] = x[(i64)blockIdx.x * n + i];
}
KERNEL_EXPORT(keep_rows);

// out[i] = x[rows[i]], zeros where there is no row. Grid: (rows, n / 256).
extern "C" __global__ void __launch_bounds__(256)
gather_rows(float* out, const float* x, const unsigned* rows, int n) {
  unsigned row = rows[blockIdx.x];
  int i = blockIdx.y * 256 + threadIdx.x;
  if (i >= n) return;
  out[(i64)blockIdx.x * n + i] = row == NO_ID ? 0.0f : x[(i64)row * n + i];
}
KERNEL_EXPORT(gather_rows);
