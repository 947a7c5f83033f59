// Runs a grid: its blocks one after another in an order that depends on the seed, each with shared
// memory that holds nothing but NaN at first.
#include <mutex>

#include "runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace emulate {

uint64_t seed = 0;
uint64_t launches_since_seed = 0;
Statistics statistics;
Launch launch;
uint3 block_place;
uint32_t launch_id = 0;
std::vector<Range> shared_ranges = {{nullptr, nullptr}};
void (*on_access)(const void*, unsigned, bool, void*) = nullptr;
void (*on_block_begin)() = nullptr;
void (*on_copy)(const void*, unsigned, bool) = nullptr;
bool (*may_access)(const void*, unsigned, bool) = nullptr;

namespace {

char* dynamic = nullptr;
size_t dynamic_capacity = 0;
uint64_t random_state = 1;
std::recursive_mutex grid_mutex;

// Every 32-bit word becomes a NaN whose low bits depend on the seed. It ignores red zones.
__attribute__((no_sanitize("address"), noinline)) void poison(char* begin, char* end) {
  uint32_t bits = (uint32_t)(random_bits() >> 20);
  for (char* p = begin; p + 4 <= end; p += 4) {
    *reinterpret_cast<volatile uint32_t*>(p) = 0xffc00000u | (bits & 0x3fffffu);
    bits = bits * 1664525u + 1013904223u;
  }
}

void grow_dynamic_shared(size_t bytes) {
  size_t rounded = (bytes + 127) / 128 * 128;
  free(dynamic);
  dynamic = static_cast<char*>(aligned_alloc(128, rounded));
  dynamic_capacity = bytes;
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(dynamic + bytes, rounded - bytes);
#endif
}

void prepare_dynamic_shared(size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  // A new one for each launch, of exactly its size, so that the red zone begins where it ends.
  free(dynamic);
  dynamic = nullptr;
  dynamic_capacity = 0;
#endif
  if (bytes > dynamic_capacity) grow_dynamic_shared(bytes);
  shared_ranges[0] = {dynamic, dynamic + bytes};
}

void check_dimensions() {
  dim3 grid = launch.grid, threads = launch.block;
  uint64_t len = (uint64_t)threads.x * threads.y * threads.z;
  if (len < 1 || len > (uint64_t)kThreadsMax || threads.z > 64)
    fail("kernel %s: blocks of (%u,%u,%u) threads", launch.name, threads.x, threads.y, threads.z);
  if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    fail("kernel %s: a grid of (%u,%u,%u) blocks", launch.name, grid.x, grid.y, grid.z);
  if (launch.shared_bytes > kSharedMax)
    fail("kernel %s: %zu bytes of dynamic shared memory", launch.name, launch.shared_bytes);
  block.threads = (int)len;
}

void start_block(uint64_t linear) {
  block.linear = (uint32_t)linear;
  block.epoch = 1;
  memset(block.warp_epoch, 0, sizeof block.warp_epoch);
  memset(block.warp_ready, 0, sizeof block.warp_ready);
  memset(block.warp_arrived, 0, sizeof block.warp_arrived);
  memset(block.warp_finished, 0, sizeof block.warp_finished);
  uint64_t columns = launch.grid.x, plane = columns * launch.grid.y;
  block_place = {(unsigned)(linear % columns), (unsigned)(linear / columns % launch.grid.y),
                 (unsigned)(linear / plane)};
  for (const Range& range : shared_ranges) poison(range.begin, range.end);
  if (on_block_begin) on_block_begin();
}

}  // namespace

uint64_t random_bits() {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

void* dynamic_shared() { return dynamic; }

void register_shared(char* begin, char* end) {
  if (begin && begin != end) shared_ranges.push_back({begin, end});
}

void run_grid(const Launch& asked) {
  std::lock_guard<std::recursive_mutex> lock(grid_mutex);
  running = nullptr;
  launch = asked;
  check_dimensions();
  prepare_stacks();
  prepare_dynamic_shared(asked.shared_bytes);
  launch_id++;
  statistics.launches++;
  uint64_t blocks = (uint64_t)asked.grid.x * asked.grid.y * asked.grid.z;
  statistics.threads += blocks * (uint64_t)block.threads;

  // Each launch draws anew, or one unlucky order would be repeated by all of them.
  random_state = seed * 0x9e3779b97f4a7c15ull + 88172645463325252ull;
  random_state += ++launches_since_seed * 0xd1342543de82ef95ull;
  for (int i = 0; i < 4; i++) random_bits();
  std::vector<uint32_t> order;
  if (seed > 1) {
    order.resize(blocks);
    for (uint64_t i = 0; i < blocks; i++) order[i] = (uint32_t)i;
    for (uint64_t i = blocks; i-- > 1;) std::swap(order[i], order[random_bits() % (i + 1)]);
  }
  for (uint64_t i = 0; i < blocks; i++) {
    start_block(seed > 1 ? order[i] : seed == 1 ? blocks - 1 - i : i);
    run_block();
  }
}

}  // namespace emulate
