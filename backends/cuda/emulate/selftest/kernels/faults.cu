// Kernels that are right, and that have one fault each when the argument `fault` says so. Whether
// and how a fault is found is the table in ../selftest.sh.
#include "shared_names.cuh"

// out[block] = sum of 256 inputs, by a tree.
extern "C" __global__ void tree_sum(int* out, const int* in, int fault) {
  __shared__ int partial[256];
  int t = threadIdx.x;
  partial[t] = in[blockIdx.x * 256 + t];
  if (fault != 1) __syncthreads();
  for (int half = 128; half > 0; half >>= 1) {
    if (t < half) partial[t] += partial[t + half];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = partial[0];
}
KERNEL_EXPORT(tree_sum);

// Each lane hands its value to its neighbour through shared memory.
extern "C" __global__ void rotate_warp(int* out, const int* in, int fault) {
  __shared__ int values[64];
  int t = threadIdx.x;
  values[t] = in[t];
  if (!fault) __syncwarp();
  out[t] = values[(t & 32) | ((t + 1) & 31)];
}
KERNEL_EXPORT(rotate_warp);

extern "C" __global__ void histogram(int* bins, const int* in, int n, int fault) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (fault)
    bins[in[i] & 15]++;
  else
    atomicAdd(&bins[in[i] & 15], 1);
}
KERNEL_EXPORT(histogram);

// Sums tiles of 256 numbers that arrive in a double buffer while the one before is summed. Thread t
// sums what another one copied. Faults: 1 no barrier before a buffer is used again, 2 no wait for
// the copy, 3 no barrier after the wait.
extern "C" __global__ void double_buffer(int* out, const int* in, int tiles, int fault) {
  DYN_SMEM(int, buffers);
  int t = threadIdx.x;
  auto fetch = [&](int tile) {
    cp_async16(buffers + (tile & 1) * 256 + t * 4, in + tile * 256 + t * 4);
    cp_async_commit();
  };
  int sum = 0;
  fetch(0);
  for (int tile = 0; tile < tiles; tile++) {
    bool more = tile + 1 < tiles;
    if (more) fetch(tile + 1);
    if (!more)
      cp_async_wait(0);
    else if (fault != 2)
      cp_async_wait(1);
    if (fault != 3) __syncthreads();
    for (int i = 0; i < 4; i++) sum += (tile + 1) * buffers[(tile & 1) * 256 + i * 64 + 63 - t];
    if (fault != 1) __syncthreads();
  }
  out[t] = sum;
}
KERNEL_EXPORT(double_buffer);

// A template's shared memory must be poisoned and checked like any other.
template <int N>
__device__ int through_shared(int t, int value, bool forgets) {
  __shared__ int values[N];
  if (!forgets || t != 3) values[t] = value;
  __syncthreads();
  int result = values[N - 1 - t];
  __syncthreads();
  return result;
}
extern "C" __global__ void template_shared(int* out, int fault) {
  out[threadIdx.x] = through_shared<64>(threadIdx.x, (int)threadIdx.x, fault != 0);
}
KERNEL_EXPORT(template_shared);

// Blocks that race for one word of global memory.
extern "C" __global__ void between_blocks(int* out, int fault) {
  if (threadIdx.x) return;
  if (fault)
    out[0] = (int)blockIdx.x;
  else
    atomicMax(&out[0], (int)blockIdx.x);
}
KERNEL_EXPORT(between_blocks);
