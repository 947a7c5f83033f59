// The race checker. Kernels are compiled with -fsanitize=thread, but the hooks that it calls are
// these and not those of the sanitizer's library: every load and store of a kernel is looked up in
// a shadow of memory that knows who touched each word last, and after how many barriers. So a race
// is found in one run whatever the order was, and so are reads of shared memory that nobody wrote,
// accesses outside live allocations, and misaligned ones. It sees nothing of what the host does.
#include <set>
#include <unordered_map>

#include "../runtime/runtime.h"

namespace emulate {

namespace {

// How far the readers since the last write are spread. More than one reader is kept as the widest
// group that they fall into, since remembering all of them would cost too much.
enum Spread : uint8_t { one_thread, one_warp, one_block, many_blocks };

// One 4-byte word of memory. Byte masks tell which bytes of it were meant.
struct Cell {
  uint32_t write_launch, write_block, write_epoch, write_warp_epoch;
  uint32_t read_launch, read_block, read_epoch, read_warp_epoch;
  uint32_t written_in;  // the block, by serial number, in which `written` is true; shared only
  uint32_t copied_in;   // the block, by serial number, in which a copy to it is under way
  uint16_t write_thread, read_thread;
  uint8_t write_mask, read_mask, written;
  bool write_atomic;
  Spread spread;
  void *write_pc, *read_pc;
};

struct Page {
  Cell cells[1024];
};

std::unordered_map<uintptr_t, Page*> pages;
struct {
  uintptr_t number;
  Page* page;
} recent[256];
std::set<std::pair<void*, void*>> reported;
uint32_t block_serial = 0;

constexpr size_t kReportsMax = 20;

Cell& cell_of(uintptr_t address) {
  uintptr_t number = address >> 12;
  auto& entry = recent[number & 255];
  if (entry.number != number || !entry.page) {
    Page*& page = pages[number];
    if (!page) page = static_cast<Page*>(calloc(1, sizeof(Page)));
    entry = {number, page};
  }
  return entry.page->cells[(address & 4095) >> 2];
}

struct Access {
  uintptr_t word;
  uint8_t mask;
  bool write, atomic, shared;
  uint32_t thread, epoch, warp_epoch;
  void* pc;
};

void report(const char* kind, const Access& access, uint32_t other_block, uint32_t other_thread,
            void* other_pc) {
  statistics.races++;
  if (reported.size() >= kReportsMax || !reported.insert({access.pc, other_pc}).second) return;
  fprintf(stderr, "EMULATE: race: %s: %s of %s memory at %s; the other: block %u thread %u at %s\n",
          where().c_str(), kind, access.shared ? "shared" : "global",
          source_line(access.pc).c_str(), other_block, other_thread, source_line(other_pc).c_str());
}

// Whether an earlier access of this block, by a thread or its whole warp, is surely over: a barrier
// lies between, or a collective if it was the same warp.
bool is_ordered(const Access& access, uint32_t thread, uint32_t epoch, uint32_t warp_epoch,
                Spread spread) {
  if (spread == one_block) return epoch < access.epoch;
  if (spread == one_thread && thread == access.thread) return true;
  bool same_warp = thread / kLanes == access.thread / kLanes;
  return same_warp ? warp_epoch < access.warp_epoch : epoch < access.epoch;
}

void check_written(const Cell& cell, const Access& access) {
  bool written = cell.written_in == block_serial && (cell.written & access.mask) == access.mask;
  if (!access.shared || access.write || written) return;
  statistics.races++;
  if (reported.size() >= kReportsMax || !reported.insert({access.pc, nullptr}).second) return;
  fprintf(stderr, "EMULATE: unwritten: %s: reads shared memory that nobody wrote in this block, at "
                  "%s\n",
          where().c_str(), source_line(access.pc).c_str());
}

void check_copy(const Cell& cell, const Access& access) {
  if (!access.shared || cell.copied_in != block_serial) return;
  const char* kind = access.write ? "write before the wait for a copy"
                                  : "read before the wait for a copy";
  report(kind, access, cell.write_block, cell.write_thread, cell.write_pc);
}

void check_last_write(const Cell& cell, const Access& access) {
  if (cell.write_launch != launch_id || !(cell.write_mask & access.mask)) return;
  if (access.atomic && cell.write_atomic) return;
  bool same_block = cell.write_block == block.linear;
  if (access.shared && !same_block) return;  // another block's shared memory was another's
  if (same_block && is_ordered(access, cell.write_thread, cell.write_epoch, cell.write_warp_epoch,
                               one_thread))
    return;
  report(access.write ? "write after write" : "read after write", access, cell.write_block,
         cell.write_thread, cell.write_pc);
}

void check_reads(const Cell& cell, const Access& access) {
  if (cell.read_launch != launch_id || !(cell.read_mask & access.mask)) return;
  bool same_block = cell.read_block == block.linear;
  if (access.shared && !same_block) return;
  if (same_block && cell.spread != many_blocks &&
      is_ordered(access, cell.read_thread, cell.read_epoch, cell.read_warp_epoch, cell.spread))
    return;
  report("write after read", access, cell.read_block, cell.read_thread, cell.read_pc);
}

void note_write(Cell& cell, const Access& access) {
  cell.write_launch = launch_id;
  cell.write_block = block.linear;
  cell.write_epoch = access.epoch;
  cell.write_warp_epoch = access.warp_epoch;
  cell.write_thread = (uint16_t)access.thread;
  cell.write_mask = access.mask;
  cell.write_atomic = access.atomic;
  cell.write_pc = access.pc;
  if (!access.shared) return;
  if (cell.written_in != block_serial) cell.written = 0;
  cell.written_in = block_serial;
  cell.written |= access.mask;
}

void note_read(Cell& cell, const Access& access) {
  bool live = cell.read_launch == launch_id && !(access.shared && cell.read_block != block.linear);
  Spread spread = one_thread;
  uint8_t mask = access.mask;
  if (live && (cell.read_block != block.linear || cell.spread == many_blocks)) {
    spread = many_blocks;
    mask |= cell.read_mask;
  } else if (live) {
    bool same_warp = cell.read_thread / kLanes == access.thread / kLanes;
    bool narrow = same_warp && cell.spread <= one_warp;
    bool same_thread = cell.read_thread == access.thread && cell.spread == one_thread;
    bool over = narrow ? cell.read_warp_epoch < access.warp_epoch : cell.read_epoch < access.epoch;
    if (same_thread || !over) mask |= cell.read_mask;
    if (!same_thread && !over) spread = narrow ? one_warp : one_block;
  }
  cell.read_launch = launch_id;
  cell.read_block = block.linear;
  cell.read_epoch = access.epoch;
  cell.read_warp_epoch = access.warp_epoch;
  cell.read_thread = (uint16_t)access.thread;
  cell.read_mask = mask;
  cell.spread = spread;
  cell.read_pc = access.pc;
}

void check_word(const Access& access) {
  Cell& cell = cell_of(access.word);
  check_written(cell, access);
  check_copy(cell, access);
  check_last_write(cell, access);
  if (access.write) {
    check_reads(cell, access);
    note_write(cell, access);
  } else {
    note_read(cell, access);
  }
}

void check(const void* address, unsigned bytes, bool write, bool atomic, void* pc) {
  // Local variables, and what the emulator itself keeps, are nobody else's.
  if (!running || is_stack(address) || is_launch_state(address)) return;
  statistics.accesses++;
  const char* verb = write ? "writes" : "reads";
  if (may_access && !may_access(address, bytes, write))
    fail("%s: %s %u bytes at %p, out of bounds", source_line(pc).c_str(), verb, bytes, address);
  if (bytes <= 16 && (uintptr_t)address % bytes)
    fail("%s: %s %u bytes at %p, misaligned", source_line(pc).c_str(), verb, bytes, address);
  Fiber* fiber = current();
  Access access{0,     0, write, atomic, is_shared(address), fiber->index, block.epoch,
                block.warp_epoch[fiber->warp], pc};
  uintptr_t begin = (uintptr_t)address, end = begin + bytes;
  for (uintptr_t at = begin; at < end; at = access.word + 4) {
    access.word = at & ~(uintptr_t)3;
    uintptr_t first = at - access.word;
    uintptr_t last = end - access.word < 4 ? end - access.word : 4;
    access.mask = (uint8_t)(((1u << last) - 1) & ~((1u << first) - 1));
    check_word(access);
  }
}

struct Install {
  Install() {
    on_access = [](const void* address, unsigned bytes, bool write, void* caller) {
      check(address, bytes, write, false, caller);
    };
    on_block_begin = [] { block_serial++; };
    on_copy = [](const void* shared, unsigned bytes, bool landed) {
      for (unsigned i = 0; i < bytes; i += 4)
        cell_of((uintptr_t)shared + i).copied_in = landed ? 0 : block_serial;
    };
  }
} install;

}  // namespace

void touch_atomic(const void* address, unsigned bytes, void* caller) {
  check(address, bytes, true, true, caller);
}

}  // namespace emulate

#define CALLER __builtin_return_address(0)
#define HOOK(name, bytes, write) \
  void __tsan_##name(void* address) { emulate::check(address, bytes, write, false, CALLER); }
#define HOOKS(n)                     \
  HOOK(read##n, n, false)            \
  HOOK(write##n, n, true)            \
  HOOK(unaligned_read##n, n, false)  \
  HOOK(unaligned_write##n, n, true)  \
  HOOK(volatile_read##n, n, false)   \
  HOOK(volatile_write##n, n, true)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void* address, unsigned long bytes) {
  emulate::check(address, (unsigned)bytes, false, false, CALLER);
}
void __tsan_write_range(void* address, unsigned long bytes) {
  emulate::check(address, (unsigned)bytes, true, false, CALLER);
}

// The sanitizer's record of an array index; only its place is of use.
struct OutOfBounds {
  const char* file;
  uint32_t line, column;
};
void __ubsan_handle_out_of_bounds_abort(OutOfBounds* place, unsigned long index) {
  const char* slash = strrchr(place->file, '/');
  emulate::fail("%s:%u: index %lu is out of the array's bounds", slash ? slash + 1 : place->file,
                place->line, index);
}

}  // extern "C"
