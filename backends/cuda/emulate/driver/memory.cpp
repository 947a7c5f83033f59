// Memory of the stand-in. Each allocation has pages of its own, ends where a page ends (but for
// less than 256 bytes, since a device aligns to 256), and lies between pages that nobody may touch:
// so an access far enough outside, or after the free, faults in every build. Nearer ones are found
// by the race checker and the address sanitizer, and writes by looking at the slack when it is
// freed. Addresses are never given out twice.
#include "memory.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "../runtime/runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace emulate {

namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlign = 256;
constexpr size_t kPatternBytes = 16 << 20;
constexpr unsigned char kSlack = 0xe5;
constexpr size_t kCapacity = 8ull << 30;

struct Arena {
  const char* name;
  uintptr_t hint;  // a fixed place, so that addresses are the same in each run
  size_t reserved;
  char* begin;
  size_t used;  // of the reserved addresses, never given back
  size_t in_use, capacity;
  std::map<char*, Allocation> live;
  // What was found last; the race checker asks for the same one again and again.
  Allocation* latest;
};

Arena arenas[] = {
    {"device", 0x7c0000000000, 2ull << 40, nullptr, kPage, 0, kCapacity, {},
     nullptr},
    {"pinned host", 0x7a0000000000, 512ull << 30, nullptr, kPage, 0, SIZE_MAX, {},
     nullptr},
};
Arena& arena_of(Space space) { return arenas[(int)space]; }

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void write_nan(char* begin, size_t bytes) {
  size_t i = 0;
  for (; i + 4 <= bytes; i += 4) {
    uint32_t word = 0xffd00000u | (uint32_t)(i & 0xfffff);
    memcpy(begin + i, &word, 4);
  }
  memset(begin + i, 0xff, bytes - i);
}

// Pages of NaN, once for all.
int pattern_file() {
  static int file = -1;
  if (file >= 0) return file;
  file = memfd_create("emulate-nan", MFD_CLOEXEC);
  std::vector<char> pattern(kPatternBytes);
  write_nan(pattern.data(), pattern.size());
  if (file < 0 || write(file, pattern.data(), pattern.size()) != (ssize_t)pattern.size())
    fail("no file for pages of NaN");
  return file;
}

bool is_slack(const char* begin, const char* end) {
  for (const char* p = begin; p < end; p++)
    if ((unsigned char)*p != kSlack) return false;
  return true;
}

void check_slack(const Arena& arena, const Allocation& gone) {
  char* end = gone.pages + gone.page_bytes;
  if (is_slack(gone.pages, gone.base) && is_slack(gone.base + gone.bytes, end)) return;
  fail("bytes next to the %s allocation %p of %zu bytes were overwritten: something wrote out of "
       "its bounds",
       arena.name, (void*)gone.base, gone.bytes);
}

struct sigaction previous_handler;

void on_fault(int signal, siginfo_t* info, void* context) {
  auto* address = static_cast<char*>(info->si_addr);
  const char* what = nullptr;
  if (is_reserved(Space::device, address)) what = "device memory that is freed or out of bounds";
  if (is_reserved(Space::pinned, address)) what = "pinned memory that is freed or out of bounds";
  if (is_stack_guard(address)) what = "the end of its stack: local arrays too big for the emulator";
  // A kernel faults nowhere else, unless it was handed a wild pointer.
  if (!what && running) what = "an address that is no device memory";
  if (what) {
    // The instruction itself, where source_line() expects the one after it.
    auto pc = (uintptr_t)static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP] + 1;
    fail("%s: touches %s (%p)", source_line((void*)pc).c_str(), what, (void*)address);
  }
  sigaction(signal, &previous_handler, nullptr);  // the fault happens again, under that one
}

}  // namespace

void reserve_memory() {
  if (const char* bytes = getenv("EMULATE_MEMORY"))
    arena_of(Space::device).capacity = strtoull(bytes, nullptr, 10);
  for (Arena& arena : arenas) {
    if (arena.begin) continue;
    void* pages = mmap((void*)arena.hint, arena.reserved, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) fail("no addresses for %s memory", arena.name);
    arena.begin = static_cast<char*>(pages);
  }
}

size_t memory_capacity() { return arena_of(Space::device).capacity; }
size_t memory_in_use() { return arena_of(Space::device).in_use; }

void fill_with_nan(char* begin, size_t bytes) {
  if (bytes < 2 * kPatternBytes) {
    write_nan(begin, bytes);
    return;
  }
  // Whole pages of a big buffer show the same pages of NaN until they are written to: a cache that
  // takes all the memory there is costs only what is used of it.
  char* first = (char*)round_up((size_t)begin, kPage);
  char* last = (char*)((size_t)(begin + bytes) / kPage * kPage);
  write_nan(begin, (size_t)(first - begin));
  write_nan(last, (size_t)(begin + bytes - last));
  while (first < last) {
    size_t len = std::min((size_t)(last - first), kPatternBytes);
    void* mapped = mmap(first, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, pattern_file(),
                        0);
    if (mapped == MAP_FAILED) fail("no memory to show %zu bytes of NaN", len);
    first += len;
  }
}

char* allocate(Space space, size_t bytes) {
  Arena& arena = arena_of(space);
  if (bytes > arena.capacity - arena.in_use) return nullptr;
  size_t page_bytes = round_up(bytes, kPage);
  if (arena.used + page_bytes + kPage > arena.reserved) return nullptr;
  Allocation fresh{};
  fresh.pages = arena.begin + arena.used;
  fresh.page_bytes = page_bytes;
  fresh.base = fresh.pages + page_bytes - round_up(bytes, kAlign);
  fresh.bytes = bytes;
  if (mprotect(fresh.pages, page_bytes, PROT_READ | PROT_WRITE)) return nullptr;
  arena.used += page_bytes + kPage;
  arena.in_use += bytes;
  memset(fresh.pages, kSlack, (size_t)(fresh.base - fresh.pages));
  char* end = fresh.base + bytes;
  memset(end, kSlack, (size_t)(fresh.pages + page_bytes - end));
  ASAN_POISON_MEMORY_REGION(fresh.pages, page_bytes);
  ASAN_UNPOISON_MEMORY_REGION(fresh.base, bytes);
  arena.live[fresh.base] = fresh;
  return fresh.base;
}

bool release(Space space, const void* base) {
  Arena& arena = arena_of(space);
  auto found = arena.live.find((char*)base);
  if (found == arena.live.end()) return false;
  arena.latest = nullptr;
  Allocation gone = found->second;
  ASAN_UNPOISON_MEMORY_REGION(gone.pages, gone.page_bytes);
  check_slack(arena, gone);
  arena.in_use -= gone.bytes;
  arena.live.erase(found);
  // A new mapping gives the pages back and forbids them in one go.
  mmap(gone.pages, gone.page_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return true;
}

Allocation* find_allocation(Space space, const void* address) {
  auto& live = arena_of(space).live;
  auto next = live.upper_bound((char*)address);
  if (next == live.begin()) return nullptr;
  Allocation& found = std::prev(next)->second;
  return (char*)address <= found.base + found.bytes ? &found : nullptr;
}

bool is_live(Space space, const void* address, size_t bytes) {
  auto covers = [=](const Allocation* one) {
    return one && (char*)address >= one->base && (char*)address + bytes <= one->base + one->bytes;
  };
  Arena& arena = arena_of(space);
  if (covers(arena.latest)) return true;
  arena.latest = find_allocation(space, address);
  return covers(arena.latest);
}

bool is_reserved(Space space, const void* address) {
  Arena& arena = arena_of(space);
  return (char*)address >= arena.begin && (char*)address < arena.begin + arena.reserved;
}

size_t leaked_allocations() { return arena_of(Space::device).live.size(); }

std::string describe_leaks() {
  std::string text;
  int listed = 0;
  for (auto& entry : arena_of(Space::device).live) {
    char line[96];
    snprintf(line, sizeof line, "%s%zu bytes at %p", listed ? ", " : "", entry.second.bytes,
             (void*)entry.first);
    text += line;
    if (++listed == 8) break;
  }
  return text;
}

void catch_bad_addresses() {
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous_handler);
}

}  // namespace emulate
