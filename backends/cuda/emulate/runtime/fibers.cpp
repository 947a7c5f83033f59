// Threads of a block as fibers: a pool of stacks and the switch between them. Never compiled for
// the race checker, and nothing here knows what a fiber does.
#include <sys/mman.h>

#include "runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMULATE_ASAN 1
#else
#define EMULATE_ASAN 0
#endif

// Saves the callee-saved registers and the stack pointer at *save, and continues at `load`. It ends
// in a jump instead of a return, because the processor's guess of a return address is always wrong
// here: that alone is worth a quarter of the time.
extern "C" void emulate_switch(void** save, void* load);
asm(R"(
.text
.globl emulate_switch
.hidden emulate_switch
.type emulate_switch,@function
emulate_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size emulate_switch,.-emulate_switch
)");

namespace emulate {

Thread* running = nullptr;
Fiber fibers[kThreadsMax];
char *stacks_begin = nullptr, *stacks_end = nullptr;

namespace {

constexpr size_t kStackBytes = EMULATE_ASAN ? 256 << 10 : 64 << 10;
constexpr size_t kGuardBytes = 4096;

std::vector<int> free_stacks;
void* scheduler_stack_pointer;

#if EMULATE_ASAN
void* scheduler_fake_stack;
const void* scheduler_bottom;
size_t scheduler_bytes;
#endif

char* stack_end(int stack) { return stacks_begin + (size_t)(stack + 1) * kStackBytes; }

void enter_fiber() {
#if EMULATE_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_bytes);
#endif
  launch.entry(launch.context);
  Fiber* fiber = current();
  if (!fiber->copies.empty())
    fail("%s:%d: thread ends with %zu cp.async copies not waited for", fiber->copies[0].site.file,
         fiber->copies[0].site.line, fiber->copies.size());
  check_products_at_end(*fiber);
  fiber->state = State::finished;
  yield_to_scheduler();
  __builtin_trap();
}

void give_stack(Fiber* fiber) {
  if (free_stacks.empty()) fail("no stack is left for a thread");
  int stack = free_stacks.back();
  free_stacks.pop_back();
  fiber->stack = stack;
#if EMULATE_ASAN
  // Frames of the fiber that had this stack before never returned.
  __asan_unpoison_memory_region(stack_end(stack) - 8192, 8192);
#endif
  // Stacks begin at different offsets, or they would all share one set of the cache.
  char* top = stack_end(stack) - 64 - (size_t)(stack * 7 % 64) * 64;
  void** slot = reinterpret_cast<void**>(top);
  *--slot = nullptr;  // where a return address would be: aligns the stack as a call does
  *--slot = reinterpret_cast<void*>(&enter_fiber);
  for (int i = 0; i < 6; i++) *--slot = nullptr;
  fiber->stack_pointer = slot;
}

}  // namespace

void prepare_stacks() {
  if (stacks_begin) return;
  void* pages = mmap(nullptr, kStackBytes * kThreadsMax, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) fail("no memory for the stacks of %d threads", kThreadsMax);
  stacks_begin = static_cast<char*>(pages);
  stacks_end = stacks_begin + kStackBytes * kThreadsMax;
  for (int stack = kThreadsMax - 1; stack >= 0; stack--) {
    mprotect(stacks_begin + (size_t)stack * kStackBytes, kGuardBytes, PROT_NONE);
    free_stacks.push_back(stack);
  }
}

bool is_stack_guard(const void* address) {
  auto* p = static_cast<const char*>(address);
  return is_stack(p) && (size_t)(p - stacks_begin) % kStackBytes < kGuardBytes;
}

void yield_to_scheduler() {
  Fiber* fiber = current();
#if EMULATE_ASAN
  void** keep = fiber->state == State::finished ? nullptr : &fiber->fake_stack;
  __sanitizer_start_switch_fiber(keep, scheduler_bottom, scheduler_bytes);
#endif
  emulate_switch(&fiber->stack_pointer, scheduler_stack_pointer);
#if EMULATE_ASAN
  __sanitizer_finish_switch_fiber(fiber->fake_stack, nullptr, nullptr);
#endif
}

void resume(Fiber* fiber) {
  if (fiber->stack < 0) give_stack(fiber);
  running = fiber;
  statistics.resumes++;
#if EMULATE_ASAN
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, stack_end(fiber->stack) - kStackBytes,
                                 kStackBytes);
#endif
  emulate_switch(&scheduler_stack_pointer, fiber->stack_pointer);
#if EMULATE_ASAN
  __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
#endif
  running = nullptr;
  // It stopped because it waits or has ended; what it did may have readied it in passing.
  block.warp_ready[fiber->warp] &= ~(1u << fiber->lane);
  if (fiber->state != State::finished) return;
  free_stacks.push_back(fiber->stack);
  block.alive--;
  block.warp_finished[fiber->warp] |= 1u << fiber->lane;
}

}  // namespace emulate
