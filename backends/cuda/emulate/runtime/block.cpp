// Runs one block: picks the next thread in an order that depends on the seed, and opens a barrier
// when all threads stand at it. Seed 0 is ascending, 1 descending, all others are random; even
// seeds run one warp as far as it goes, odd ones take all warps in step. Both are needed, because
// some faults show in one of them only.
#include "runtime.h"

namespace emulate {

Block block;

namespace {

// Points `running` at the thread that a failure is about, so that the message names it.
void blame(Fiber& fiber) { running = &fiber; }

void set_up_fibers() {
  int index = 0;
  for (unsigned z = 0; z < launch.block.z; z++) {
    for (unsigned y = 0; y < launch.block.y; y++) {
      for (unsigned x = 0; x < launch.block.x; x++, index++) {
        Fiber& fiber = fibers[index];
        fiber.thread = {x, y, z};
        fiber.block = block_place;
        fiber.block_dim = launch.block;
        fiber.grid_dim = launch.grid;
        fiber.index = (uint32_t)index;
        fiber.lane = (uint32_t)index % kLanes;
        fiber.warp = (uint32_t)index / kLanes;
        fiber.stack = -1;
        make_ready(fiber);
        fiber.copies.clear();
        fiber.groups.clear();
        fiber.unfenced.clear();
      }
    }
  }
}

// Nobody can run, so everybody alive must stand at the same barrier.
void check_barrier(int waiting) {
  if (waiting != block.alive) {
    for (int i = 0; i < block.threads; i++) {
      Fiber& fiber = fibers[i];
      if (fiber.state != State::in_warp_op) continue;
      blame(fiber);
      fail("%s:%d: deadlock: this thread waits in a warp operation with mask %08x, while %d of %d "
           "live threads wait at __syncthreads",
           fiber.site.file, fiber.site.line, fiber.mask, waiting, block.alive);
    }
  }
  Fiber* first = nullptr;
  for (int i = 0; i < block.threads; i++) {
    Fiber& fiber = fibers[i];
    if (fiber.state != State::at_barrier) continue;
    if (!first) first = &fiber;
    if (same_site(fiber.site, first->site) && fiber.barrier == first->barrier) continue;
    blame(fiber);
    fail("%s:%d: divergent __syncthreads: thread %u waits at %s:%d", fiber.site.file,
         fiber.site.line, first->index, first->site.file, first->site.line);
  }
  if (block.alive == block.threads) return;
  for (int i = 0; i < block.threads; i++) {
    if (fibers[i].state != State::finished) continue;
    blame(fibers[i]);
    fail("%s:%d: this thread has ended while others wait at __syncthreads", first->site.file,
         first->site.line);
  }
}

void open_barrier() {
  int votes = 0;
  for (int i = 0; i < block.threads; i++)
    if (fibers[i].state == State::at_barrier) votes += fibers[i].predicate;
  for (int i = 0; i < block.threads; i++) {
    Fiber& fiber = fibers[i];
    if (fiber.state != State::at_barrier) continue;
    make_ready(fiber);
    if (fiber.barrier == BarrierKind::count) fiber.predicate = votes;
    if (fiber.barrier == BarrierKind::all) fiber.predicate = votes == block.alive;
    if (fiber.barrier == BarrierKind::any) fiber.predicate = votes > 0;
  }
  statistics.barriers++;
  block.epoch++;
  for (auto& epoch : block.warp_epoch) epoch++;
}

void put_in_order(uint16_t* queue, int len) {
  if (seed == 0) return;
  if (seed == 1) {
    for (int a = 0, b = len - 1; a < b; a++, b--) std::swap(queue[a], queue[b]);
    return;
  }
  for (int a = len - 1; a > 0; a--)
    std::swap(queue[a], queue[(random_bits() >> 32) * (uint64_t)(a + 1) >> 32]);
}

// Runs the lanes of a warp, each to its next sync point, again and again until none can go on.
void exhaust_warp(uint32_t warp) {
  Fiber* lanes = fibers + warp * kLanes;
  while (block.warp_ready[warp]) {
    // An odd multiplier and an exclusive or: a cheap permutation of 32 lanes.
    uint32_t bits = seed > 1 ? (uint32_t)(random_bits() >> 33) : 0;
    uint32_t flip = bits & 31, multiplier = (bits >> 5 & 30) | 1;
    for (uint32_t i = 0; i < (uint32_t)kLanes; i++) {
      uint32_t lane = (i * multiplier ^ flip) & 31;
      if (block.warp_ready[warp] >> lane & 1) resume(&lanes[lane]);
    }
  }
}

}  // namespace

void run_block() {
  statistics.blocks++;
  set_up_fibers();
  begin_products();
  block.alive = block.threads;
  static uint16_t queue[kThreadsMax];
  while (block.alive) {
    int len = 0, waiting = 0;
    for (int i = 0; i < block.threads; i++) {
      if (fibers[i].state == State::ready) queue[len++] = (uint16_t)i;
      if (fibers[i].state == State::at_barrier) waiting++;
    }
    if (!len) {
      check_barrier(waiting);
      open_barrier();
      continue;
    }
    put_in_order(queue, len);
    uint32_t exhausted = 0;  // warps; nothing but a barrier wakes one of them again
    for (int i = 0; i < len; i++) {
      Fiber* fiber = &fibers[queue[i]];
      if (seed & 1) {
        resume(fiber);
      } else if (!(exhausted >> fiber->warp & 1)) {
        exhaust_warp(fiber->warp);
        exhausted |= 1u << fiber->warp;
      }
    }
  }
  end_products();
}

int barrier(Site site, BarrierKind kind, int predicate) {
  Fiber* fiber = current();
  fiber->state = State::at_barrier;
  fiber->site = site;
  fiber->barrier = kind;
  fiber->predicate = predicate;
  yield_to_scheduler();
  return fiber->predicate;
}

}  // namespace emulate
