// Warp collectives and asynchronous copies: who must take part, when it happens, and what is
// refused because the device leaves it undefined.
#include "runtime.h"

namespace emulate {

namespace {

const char* name_of(WarpOp op) {
  static const char* names[] = {"none",       "__syncwarp", "shfl",       "shfl_up",
                                "shfl_down",  "shfl_xor",   "ballot",     "reduce_add",
                                "reduce_min", "reduce_max", "reduce_and", "reduce_or",
                                "reduce_xor", "mma",
                                "wgmma",      "wgmma.fence", "wgmma.commit_group",
                                "wgmma.wait_group"};
  return names[(int)op];
}

void refuse_divergence(const Fiber& fiber, const Fiber& other) {
  if (other.op == fiber.op && other.mask == fiber.mask && same_site(other.site, fiber.site)) return;
  fail("%s:%d: warp %u diverges: lane %u is at %s with mask %08x, lane %u at %s with mask %08x "
       "(%s:%d)",
       fiber.site.file, fiber.site.line, fiber.warp, fiber.lane, name_of(fiber.op), fiber.mask,
       other.lane, name_of(other.op), other.mask, other.site.file, other.site.line);
}

void move_bytes(const PendingCopy& copy) {
  if (copy.from) {
    memcpy(copy.to, copy.from, copy.bytes);
  } else {
    memset(copy.to, 0, copy.bytes);
  }
}

void land(const PendingCopy& copy) {
  if (on_copy) on_copy(copy.to, copy.bytes, true);
  if (on_access) {
    if (copy.from) on_access(copy.from, copy.bytes, false, copy.caller);
    on_access(copy.to, copy.bytes, true, copy.caller);
  }
  move_bytes(copy);
}

}  // namespace

void warp_collect(uint32_t mask, WarpOp op, Site site, Combine combine, void* exchange) {
  Fiber* fiber = current();
  statistics.warp_ops++;
  if (!(mask >> fiber->lane & 1))
    fail("%s:%d: %s: the calling lane %u is not in mask %08x", site.file, site.line, name_of(op),
         fiber->lane, mask);
  fiber->mask = mask;
  fiber->op = op;
  fiber->exchange = exchange;
  fiber->site = site;
  fiber->state = State::in_warp_op;

  uint32_t warp = fiber->warp;
  Fiber* lanes = fibers + warp * kLanes;
  int len = lanes_of_warp(warp);
  // Lanes that a partial last warp does not have count as inactive.
  uint32_t needed = len < kLanes ? mask & ((1u << len) - 1) : mask;
  if (block.warp_finished[warp] & needed)
    fail("%s:%d: %s: lane %d of mask %08x has ended", site.file, site.line, name_of(op),
         __builtin_ctz(block.warp_finished[warp] & needed), mask);
  uint32_t arrived = block.warp_arrived[warp] |= 1u << fiber->lane;
  if ((arrived & needed) != needed) {
    yield_to_scheduler();
    return;
  }
  if (op >= WarpOp::mma_s8 && needed != 0xffffffffu)
    fail("%s:%d: %s by a warp of %d lanes", site.file, site.line, name_of(op), len);
  // The last one to come combines for all, without a switch of its own.
  void* exchanges[kLanes];
  for (uint32_t left = needed; left; left &= left - 1) {
    int lane = __builtin_ctz(left);
    refuse_divergence(*fiber, lanes[lane]);
    exchanges[lane] = lanes[lane].exchange;
    make_ready(lanes[lane]);
  }
  block.warp_arrived[warp] &= ~needed;
  if (combine) combine(exchanges, needed);
  block.warp_epoch[warp]++;
}

// A copy may land at any moment between its start and its wait. Seed 0 lands all of them late, 1
// all of them early, others toss a coin for each: with late ones alone, a copy that overwrites a
// buffer that is still being read goes unnoticed. One of nothing writes zeros.
void copy_async(Site site, void* shared, const void* global, unsigned bytes, bool exists) {
  if ((uintptr_t)shared % bytes || (uintptr_t)global % bytes)
    fail("%s:%d: cp.async of %u bytes from %p to %p is not aligned", site.file, site.line, bytes,
         global, shared);
  if (!is_shared(shared) || !is_shared(static_cast<char*>(shared) + bytes - 1))
    fail("%s:%d: cp.async to %p, which is not shared memory", site.file, site.line, shared);
  void* caller = __builtin_return_address(0);
  check_no_product_reads(site, shared, bytes);
  PendingCopy copy{site, caller, shared, exists ? global : nullptr, bytes};
  current()->copies.push_back(copy);
  if (on_access) {
    if (exists) on_access(global, bytes, false, caller);
    on_access(shared, bytes, true, caller);
  }
  if (on_copy) on_copy(shared, bytes, false);
  bool early = seed == 1 || (seed > 1 && random_bits() >> 40 & 1);
  if (early) move_bytes(copy);
}

void copy_commit() { current()->groups.push_back(current()->copies.size()); }

void copy_wait(int groups_left) {
  Fiber* fiber = current();
  int groups = (int)fiber->groups.size() - groups_left;
  if (groups <= 0) return;
  size_t end = fiber->groups[(size_t)groups - 1];
  for (size_t i = 0; i < end; i++) {
    land(fiber->copies[i]);
    fiber->unfenced.push_back(fiber->copies[i]);
  }
  fiber->copies.erase(fiber->copies.begin(), fiber->copies.begin() + (long)end);
  fiber->groups.erase(fiber->groups.begin(), fiber->groups.begin() + groups);
  for (size_t& group : fiber->groups) group -= end;
}

}  // namespace emulate
