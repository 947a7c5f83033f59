// What the parts of the emulator know of each other: the fibers that stand for a block's threads,
// the state of the launch that is running, and the hooks through which the race checker and the
// driver look on. Kernels never see this header.
#pragma once
#include <string>
#include <vector>

#include "../shim/language.h"
#include "../shim/register.h"
#include "../shim/warp.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

// All of this stays inside the library, where it can then be reached without a detour.
#pragma GCC visibility push(hidden)

namespace emulate {

constexpr int kThreadsMax = 1024;  // of a block
constexpr int kLanes = 32;
constexpr int kWarpsMax = kThreadsMax / kLanes;
constexpr size_t kSharedMax = 232448;  // bytes a block can opt in to on sm_90
constexpr int kMisuseStatus = 77;

inline bool same_site(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

enum class State : uint8_t { ready, at_barrier, in_warp_op, finished };

// A copy from nowhere writes zeros.
struct PendingCopy {
  Site site;
  void* caller;
  void* to;
  const void* from;
  unsigned bytes;
};

// One thread of the running block.
struct Fiber : Thread {
  void* stack_pointer;
  int stack;  // index in the pool, -1 before it has run
  State state;
  BarrierKind barrier;
  WarpOp op;
  int predicate;  // handed to a barrier, and its result
  Site site;      // where it waits
  uint32_t mask;
  void* exchange;
  void* fake_stack;  // AddressSanitizer's
  uint32_t index, warp, lane;
  std::vector<PendingCopy> copies;
  std::vector<size_t> groups;  // ends of the committed groups in `copies`
  std::vector<PendingCopy> unfenced;  // landed, and not yet fenced for products of warpgroups
};

// The block that is running.
struct Block {
  int threads, alive;
  uint32_t linear;                // index in the grid
  uint32_t epoch;                 // barriers passed, from 1
  uint32_t warp_epoch[kWarpsMax];  // barriers and collectives passed
  // Masks of lanes: those that can run, wait in a collective, or have ended.
  uint32_t warp_ready[kWarpsMax], warp_arrived[kWarpsMax], warp_finished[kWarpsMax];
};

struct Statistics {
  uint64_t launches, blocks, threads, resumes, barriers, warp_ops, accesses, races;
};

extern Fiber fibers[kThreadsMax];
extern Block block;
extern Launch launch;     // of the grid that is running
extern uint3 block_place;  // of the block that is running
extern uint32_t launch_id;
extern uint64_t seed;
extern uint64_t launches_since_seed;  // so that a seed gives the same orders whenever it is set
extern Statistics statistics;

inline Fiber* current() { return static_cast<Fiber*>(running); }
// Lets a thread run that waited, or is new.
inline void make_ready(Fiber& fiber) {
  fiber.state = State::ready;
  block.warp_ready[fiber.warp] |= 1u << fiber.lane;
}
inline int lanes_of_warp(uint32_t warp) {
  int left = block.threads - (int)warp * kLanes;
  return left < kLanes ? left : kLanes;
}

// fibers.cpp
void prepare_stacks();
void resume(Fiber* fiber);
void yield_to_scheduler();
extern char *stacks_begin, *stacks_end;
inline bool is_stack(const void* address) {
  return address >= stacks_begin && address < stacks_end;
}
bool is_stack_guard(const void* address);

// block.cpp
void run_block();

// wgmma.cpp
void begin_products();
void end_products();
void check_products_at_end(const Fiber& fiber);
void check_no_product_reads(Site site, const void* begin, unsigned bytes);

// grid.cpp
uint64_t random_bits();
struct Range {
  char *begin, *end;
  bool has(const void* address) const { return address >= begin && address < end; }
};
// Dynamic shared memory of the launch first, then the static of each library of kernels.
extern std::vector<Range> shared_ranges;
inline bool is_shared(const void* address) {
  for (const Range& range : shared_ranges)
    if (range.has(address)) return true;
  return false;
}
// Memory that belongs to the emulator: kernels read it all the time and nobody races for it.
inline bool is_launch_state(const void* address) {
  if (address >= fibers && address < fibers + kThreadsMax) return true;
  auto* arguments = static_cast<const char*>(launch.context);
  return address == &running ||
         (address >= arguments && address < arguments + launch.context_bytes);
}

// registry.cpp
const Kernel* find_kernel(const char* name, uint64_t source_hash, bool any_source);
// What a block may have of this kernel's threads, by its __launch_bounds__.
int threads_max(const Kernel& kernel);
bool is_known_source(uint64_t source_hash);
size_t sources_len();

// failure.cpp
std::string where();
std::string source_line(const void* program_counter);
[[noreturn]] void leave(const std::string& message);
// Once the kernels are loaded: what a sanitizer finds ends the process as everything else does.
void end_with_sanitizers();

// Hooks, null when nobody looks on.
extern void (*on_access)(const void* address, unsigned bytes, bool write, void* caller);
extern void (*on_block_begin)();
// Shared memory that an asynchronous copy may write at any time from now on, or no longer.
extern void (*on_copy)(const void* shared, unsigned bytes, bool landed);
// Whether a kernel may touch these bytes; the driver knows.
extern bool (*may_access)(const void* address, unsigned bytes, bool write);

}  // namespace emulate

#pragma GCC visibility pop
