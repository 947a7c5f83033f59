// Warp collectives: each lane hands in its value and the last one to arrive combines them. Which
// lanes must take part is checked in ../runtime/warp.cpp; nothing here may assume a full warp.
#pragma once
#include "language.h"

namespace emulate {

enum class WarpOp : uint8_t {
  none,
  syncwarp,
  shfl,
  shfl_up,
  shfl_down,
  shfl_xor,
  ballot,
  reduce_add,
  reduce_min,
  reduce_max,
  reduce_and,
  reduce_or,
  reduce_xor,
  mma_s8,
  // Of a warpgroup, each warp on its own.
  wgmma,
  wgmma_fence,
  wgmma_commit,
  wgmma_wait,
};

// Combines what the lanes of `mask` handed in, in place; `lanes[i]` is nothing outside the mask.
typedef void (*Combine)(void* lanes[32], uint32_t mask);
void warp_collect(uint32_t mask, WarpOp op, Site site, Combine combine, void* exchange);

template <class T>
struct Shuffled {
  T value, result;
  int argument, width;
};

// The lane that `lane` reads from, by the rules of the PTX shfl instruction.
EMULATE_EXACT int shuffle_source(WarpOp op, int lane, int argument, int width) {
  int base = lane & ~(width - 1);
  int end = base + width;
  switch (op) {
    case WarpOp::shfl:
      return base | (argument & (width - 1));
    case WarpOp::shfl_up:
      return lane - argument < base ? lane : lane - argument;
    case WarpOp::shfl_down:
      return lane + argument >= end ? lane : lane + argument;
    default: {
      int source = lane ^ argument;
      return source >= end ? lane : source;
    }
  }
}

template <class T, WarpOp op>
EMULATE_UNSEEN void combine_shuffle(void* lanes[32], uint32_t mask) {
  for (int lane = 0; lane < 32; lane++) {
    if (!(mask >> lane & 1)) continue;
    auto* own = static_cast<Shuffled<T>*>(lanes[lane]);
    int source = shuffle_source(op, lane, own->argument, own->width);
    if (source < 0 || source > 31 || !(mask >> source & 1))
      fail("shfl: lane %d reads lane %d, which is not in mask %08x (undefined on the device)",
           lane, source, mask);
    own->result = static_cast<Shuffled<T>*>(lanes[source])->value;
  }
}

template <WarpOp op, class T>
EMULATE_UNSEEN T shuffle(Site site, uint32_t mask, T value, int argument, int width = 32) {
  static_assert(std::is_arithmetic<T>::value && sizeof(T) >= 4, "no shuffle of this type");
  if (width < 1 || width > 32 || (width & (width - 1)))
    fail("%s:%d: shfl: width %d is no power of two up to 32", site.file, site.line, width);
  Shuffled<T> exchange{value, value, argument, width};
  warp_collect(mask, op, site, &combine_shuffle<T, op>, &exchange);
  return exchange.result;
}

template <class T>
struct Reduced {
  T value, result;
};

template <WarpOp op, class T>
EMULATE_EXACT T reduce_two(T a, T b) {
  switch (op) {
    case WarpOp::reduce_add:
      return static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
    case WarpOp::reduce_min:
      return b < a ? b : a;
    case WarpOp::reduce_max:
      return a < b ? b : a;
    case WarpOp::reduce_and:
      return a & b;
    case WarpOp::reduce_or:
      return a | b;
    default:
      return a ^ b;
  }
}

template <WarpOp op, class T>
EMULATE_UNSEEN void combine_reduce(void* lanes[32], uint32_t mask) {
  bool first = true;
  T sum{};
  for (int lane = 0; lane < 32; lane++) {
    if (!(mask >> lane & 1)) continue;
    T value = static_cast<Reduced<T>*>(lanes[lane])->value;
    sum = first ? value : reduce_two<op, T>(sum, value);
    first = false;
  }
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) static_cast<Reduced<T>*>(lanes[lane])->result = sum;
}

template <WarpOp op, class T>
EMULATE_UNSEEN T reduce(Site site, uint32_t mask, T value) {
  static_assert(std::is_integral<T>::value && sizeof(T) == 4, "the device reduces 32-bit integers");
  Reduced<T> exchange{value, value};
  warp_collect(mask, op, site, &combine_reduce<op, T>, &exchange);
  return exchange.result;
}

EMULATE_UNSEEN void combine_ballot(void* lanes[32], uint32_t mask) {
  unsigned votes = 0;
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1 && static_cast<Reduced<unsigned>*>(lanes[lane])->value)
      votes |= 1u << lane;
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) static_cast<Reduced<unsigned>*>(lanes[lane])->result = votes;
}

EMULATE_UNSEEN unsigned ballot(Site site, uint32_t mask, bool vote) {
  Reduced<unsigned> exchange{vote ? 1u : 0u, 0};
  warp_collect(mask, WarpOp::ballot, site, &combine_ballot, &exchange);
  return exchange.result;
}

// A functor, because a macro can't have an optional argument and none at all in C++17.
struct SyncWarp {
  Site site;
  EMULATE_UNSEEN void operator()(uint32_t mask = 0xffffffffu) const {
    warp_collect(mask, WarpOp::syncwarp, site, nullptr, nullptr);
  }
};

}  // namespace emulate

#define EMULATE_SHUFFLE(op, m, ...) \
  ::emulate::shuffle<::emulate::WarpOp::op>(EMULATE_SITE, m, __VA_ARGS__)
#define __shfl_sync(m, ...) EMULATE_SHUFFLE(shfl, m, __VA_ARGS__)
#define __shfl_up_sync(m, ...) EMULATE_SHUFFLE(shfl_up, m, __VA_ARGS__)
#define __shfl_down_sync(m, ...) EMULATE_SHUFFLE(shfl_down, m, __VA_ARGS__)
#define __shfl_xor_sync(m, ...) EMULATE_SHUFFLE(shfl_xor, m, __VA_ARGS__)

#define EMULATE_REDUCE(op, m, v) ::emulate::reduce<::emulate::WarpOp::op>(EMULATE_SITE, m, v)
#define __reduce_add_sync(m, v) EMULATE_REDUCE(reduce_add, m, v)
#define __reduce_min_sync(m, v) EMULATE_REDUCE(reduce_min, m, v)
#define __reduce_max_sync(m, v) EMULATE_REDUCE(reduce_max, m, v)
#define __reduce_and_sync(m, v) EMULATE_REDUCE(reduce_and, m, v)
#define __reduce_or_sync(m, v) EMULATE_REDUCE(reduce_or, m, v)
#define __reduce_xor_sync(m, v) EMULATE_REDUCE(reduce_xor, m, v)

#define __ballot_sync(m, p) ::emulate::ballot(EMULATE_SITE, m, (p) ? true : false)
#define __any_sync(m, p) (__ballot_sync(m, p) != 0 ? 1 : 0)
#define __all_sync(m, p) (__ballot_sync(m, !(p)) == 0 ? 1 : 0)
#define __syncwarp(...) (::emulate::SyncWarp{EMULATE_SITE}(__VA_ARGS__))
