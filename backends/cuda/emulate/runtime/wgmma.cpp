// The products of warpgroups (wgmma, int8): descriptors, when a product reads its operands and writes its sums, and
// what is refused because the device leaves it undefined. A product may run at any time from its start to the wait for
// its group: seed 0 runs all of them at the wait, 1 at the start, others toss a coin. Until then its sums are garbage,
// and its operands nobody's to write. It must never take what a device would not.
#include <immintrin.h>

#include "runtime.h"

// After the runtime's own, since its macros have the names of functions.
#include "../shim/wgmma.h"
#undef shared_address

namespace emulate {

namespace {

constexpr int kWarpsOfGroup = 4;
constexpr int kRowsOfWarp = 16;
constexpr int kInputs = 32;
constexpr int kCoreBytes = 128;  // 8 rows of 16 bytes
constexpr int kOutputsMax = 256;
// Where dynamic shared memory begins in the window: what lies before it is the system's on a device.
constexpr unsigned kWindowBegin = 1024;

// An operand, decoded: rows of 32 inputs in core matrices.
struct Operand {
  const char* begin;
  size_t leading, stride;
  int rows;
  // One past its last byte, wherever its core matrices lie.
  const char* end() const {
    return begin + leading + (size_t)(rows / 8 - 1) * stride + kCoreBytes;
  }
  const char* core(int rows_before, int half) const {
    return begin + (size_t)half * leading + (size_t)(rows_before / 8) * stride;
  }
};

// What the threads of a warp hand in.
struct Asked {
  Site site;
  void* caller;
  int* sums;
  int n;
  uint64_t a, b;
  bool adds;
};

// Sums of a warp that a product under way has; `lanes` hold garbage meanwhile.
struct Sums {
  int* lanes[kLanes];
  int len, users;
  int values[kLanes][kOutputsMax / 2];
};

struct Product {
  Site site;
  void* caller;
  Operand a, b;
  bool adds, has_run;
  Sums* sums;
};

// What a warp has under way, in order.
struct Warp {
  std::vector<Product> products;  // from the start to the wait
  std::vector<size_t> groups;     // ends of the committed groups in `products`
  std::vector<Sums*> sums;
  bool is_fenced;
  size_t num_asked;
};

Warp warps[kWarpsMax];
// What the warps of a warpgroup have asked for in this block: all of them the same, in the same order.
std::vector<Asked> asked_of[kWarpsMax / kWarpsOfGroup];

int garbage(int lane, int i) {
  return (int)(0x5bad5bad ^ (uint32_t)(lane * 131 + i * 7) ^ (uint32_t)(seed * 2654435761u));
}

bool has_core_matrix_at(const Operand& operand, const char* begin, const char* end) {
  if (end <= operand.begin || begin >= operand.end()) return false;
  for (int row = 0; row < operand.rows; row += 8) {
    for (int half = 0; half < 2; half++) {
      const char* core = operand.core(row, half);
      if (begin < core + kCoreBytes && core < end) return true;
    }
  }
  return false;
}

bool uses(const Product& product, const char* begin, const char* end) {
  return has_core_matrix_at(product.a, begin, end) || has_core_matrix_at(product.b, begin, end);
}

// The bits of a matrix descriptor: start 0-13, leading 16-29 and stride 32-45, each in 16 bytes;
// base offset 49-51; swizzling 62-63.
Operand decode(Site site, const char* which, uint64_t descriptor, int rows) {
  auto refuse = [&](const char* what) {
    fail("%s:%d: wgmma: descriptor %016llx of %s: %s", site.file, site.line,
         (unsigned long long)descriptor, which, what);
  };
  if (descriptor & 0x3ff1c000c000c000ull) refuse("bits are set that have no meaning");
  if (descriptor >> 62) refuse("swizzling is not emulated");
  if (descriptor >> 49 & 7) refuse("a base offset without swizzling");
  auto field = [&](int bit) { return (unsigned)(descriptor >> bit & 0x3fff) << 4; };
  unsigned at = kWindowBegin;
  for (const Range& range : shared_ranges) {
    unsigned len = (unsigned)(range.end - range.begin);
    if (field(0) >= at && field(0) < at + len) {
      Operand found{range.begin + (field(0) - at), field(16), field(32), rows};
      if (found.end() > range.end) refuse("it goes beyond shared memory");
      return found;
    }
    at += (len + 127) / 128 * 128;
  }
  refuse("it begins outside shared memory");
  __builtin_unreachable();
}

// What copies may still write, or have written without a fence, is not there for a product.
void check_copies(const Product& product) {
  for (int i = 0; i < block.threads; i++) {
    for (const auto* copies : {&fibers[i].copies, &fibers[i].unfenced}) {
      for (const PendingCopy& copy : *copies) {
        auto* to = static_cast<const char*>(copy.to);
        if (!uses(product, to, to + copy.bytes)) continue;
        const char* missing = copies == &fibers[i].copies ? "waited for" : "fenced for products";
        fail("%s:%d: wgmma reads what thread %d has copied (%s:%d) and not %s", product.site.file,
             product.site.line, i, copy.site.file, copy.site.line, missing);
      }
    }
  }
}

void tell_race_checker(const Product& product) {
  if (!on_access) return;
  int first = (int)(current()->warp % kWarpsOfGroup) * kRowsOfWarp;
  for (int half = 0; half < 2; half++) {
    for (int row = first; row < first + kRowsOfWarp; row += 8)
      on_access(product.a.core(row, half), kCoreBytes, false, product.caller);
    for (int row = 0; row < product.b.rows; row += 8)
      on_access(product.b.core(row, half), kCoreBytes, false, product.caller);
  }
}

void read_row(int16_t* to, const Operand& operand, int row) {
  for (int half = 0; half < 2; half++) {
    auto* from = reinterpret_cast<const int8_t*>(operand.core(row, half) + row % 8 * 16);
    for (int i = 0; i < 16; i++) to[half * 16 + i] = from[i];
  }
}

// The sums of products of two rows; they can't overflow.
int dot(const int16_t* a, const int16_t* b) {
  auto at = [](const int16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  };
  __m256i sums = _mm256_add_epi32(_mm256_madd_epi16(at(a), at(b)),
                                  _mm256_madd_epi16(at(a + 16), at(b + 16)));
  int lanes[8], sum = 0;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sums);
  for (int lane : lanes) sum += lane;
  return sum;
}

// Sums are given back when no product has them any more.
void give_back(Warp& warp, Sums* sums) {
  for (int lane = 0; lane < kLanes; lane++) {
    for (int i = 0; i < sums->len; i++) {
      if (sums->lanes[lane][i] != garbage(lane, i))
        fail("lane %d has written accumulator %d of a wgmma that was not waited for", lane, i);
      sums->lanes[lane][i] = sums->values[lane][i];
    }
  }
  for (size_t i = 0; i < warp.sums.size(); i++)
    if (warp.sums[i] == sums) warp.sums.erase(warp.sums.begin() + (long)i);
  delete sums;
}

// Lane 4 * group + quad has of each 8 outputs rows group and group + 8, outputs 2 * quad and 2 * quad + 1.
void run(Warp& warp, Product& product) {
  tell_race_checker(product);
  static int16_t a[kRowsOfWarp][kInputs], b[kOutputsMax][kInputs];
  int first = (int)(current()->warp % kWarpsOfGroup) * kRowsOfWarp;
  for (int row = 0; row < kRowsOfWarp; row++) read_row(a[row], product.a, first + row);
  for (int row = 0; row < product.b.rows; row++) read_row(b[row], product.b, row);
  for (int lane = 0; lane < kLanes; lane++) {
    for (int i = 0; i < product.sums->len; i++) {
      int row = lane / 4 + i / 2 % 2 * 8, output = i / 4 * 8 + lane % 4 * 2 + i % 2;
      int& sum = product.sums->values[lane][i];
      unsigned before = product.adds ? (unsigned)sum : 0;  // wraps
      sum = (int)(before + (unsigned)dot(a[row], b[output]));
    }
  }
  product.has_run = true;
  if (!--product.sums->users) give_back(warp, product.sums);
}

// Products run in the order of their start, each perhaps now.
void run_some(Warp& warp) {
  if (!seed) return;
  for (Product& product : warp.products) {
    if (product.has_run) continue;
    if (seed > 1 && random_bits() >> 40 & 1) return;
    run(warp, product);
  }
}

Sums* take_sums(Warp& warp, void* lanes[32], int len) {
  Asked* first = static_cast<Asked*>(lanes[0]);
  for (Sums* sums : warp.sums) {
    if (sums->lanes[0] != first->sums) continue;
    sums->users++;
    return sums;
  }
  auto* sums = new Sums{};
  sums->len = len;
  sums->users = 1;
  for (int lane = 0; lane < kLanes; lane++) {
    int* own = sums->lanes[lane] = static_cast<Asked*>(lanes[lane])->sums;
    memcpy(sums->values[lane], own, (size_t)len * sizeof(int));
    for (int i = 0; i < len; i++) own[i] = garbage(lane, i);
  }
  warp.sums.push_back(sums);
  return sums;
}

void check_agreement(const Asked& own, const Asked& other, const char* who) {
  if (own.a == other.a && own.b == other.b && own.n == other.n && own.adds == other.adds &&
      same_site(own.site, other.site))
    return;
  fail("%s:%d: the %s do not ask for the same wgmma", own.site.file, own.site.line, who);
}

void start(void* lanes[32], uint32_t) {
  uint32_t index = current()->warp;
  const Asked& asked = *static_cast<Asked*>(lanes[0]);
  for (int lane = 1; lane < kLanes; lane++)
    check_agreement(asked, *static_cast<Asked*>(lanes[lane]), "lanes of a warp");
  int whole = block.threads / (kLanes * kWarpsOfGroup) * kWarpsOfGroup;
  if ((int)index >= whole)
    fail("%s:%d: wgmma by a warpgroup that is not whole", asked.site.file, asked.site.line);
  Warp& warp = warps[index];
  auto& history = asked_of[index / kWarpsOfGroup];
  if (warp.num_asked < history.size()) {
    check_agreement(asked, history[warp.num_asked], "warps of a warpgroup");
  } else {
    history.push_back(asked);
  }
  warp.num_asked++;
  if (!warp.is_fenced)
    fail("%s:%d: wgmma without a wgmma.fence before", asked.site.file, asked.site.line);
  Product product{asked.site,
                  asked.caller,
                  decode(asked.site, "a", asked.a, kRowsOfWarp * kWarpsOfGroup),
                  decode(asked.site, "b", asked.b, asked.n),
                  asked.adds,
                  false,
                  take_sums(warp, lanes, asked.n / 2)};
  check_copies(product);
  tell_race_checker(product);
  warp.products.push_back(product);
  run_some(warp);
}

}  // namespace

unsigned shared_address(const void* at) {
  unsigned begin = kWindowBegin;
  for (const Range& range : shared_ranges) {
    if (range.has(at)) {
      begin += (unsigned)(static_cast<const char*>(at) - range.begin);
      if (begin < 1u << 18) return begin;
      fail("%p is further in shared memory than a descriptor reaches", at);
    }
    begin += (unsigned)(range.end - range.begin + 127) / 128 * 128;
  }
  fail("%p is not in shared memory", at);
}

void fence_for_products() { current()->unfenced.clear(); }

void product_fence(Site site, int*) {
  warp_collect(0xffffffffu, WarpOp::wgmma_fence, site,
               [](void**, uint32_t) { warps[current()->warp].is_fenced = true; }, nullptr);
}

void product_s8(Site site, int* sums, int n, uint64_t a, uint64_t b, bool adds) {
  Asked asked{site, __builtin_return_address(0), sums, n, a, b, adds};
  warp_collect(0xffffffffu, WarpOp::wgmma, site, &start, &asked);
}

void product_commit(Site site) {
  warp_collect(0xffffffffu, WarpOp::wgmma_commit, site, [](void**, uint32_t) {
    Warp& warp = warps[current()->warp];
    warp.groups.push_back(warp.products.size());
    run_some(warp);
  }, nullptr);
}

void product_wait(Site site, int groups_left) {
  warp_collect(0xffffffffu, WarpOp::wgmma_wait, site, [](void* lanes[32], uint32_t) {
    Warp& warp = warps[current()->warp];
    // Its owner may now touch what was given back.
    warp.is_fenced = false;
    int groups = (int)warp.groups.size() - *static_cast<int*>(lanes[0]);
    if (groups <= 0) return;
    size_t end = warp.groups[(size_t)groups - 1];
    for (size_t i = 0; i < end; i++)
      if (!warp.products[i].has_run) run(warp, warp.products[i]);
    warp.products.erase(warp.products.begin(), warp.products.begin() + (long)end);
    warp.groups.erase(warp.groups.begin(), warp.groups.begin() + groups);
    for (size_t& group : warp.groups) group -= end;
  }, &groups_left);
}

void check_no_product_reads(Site site, const void* begin, unsigned bytes) {
  auto* at = static_cast<const char*>(begin);
  for (int i = 0; i < block.threads / kLanes; i++) {
    for (const Product& product : warps[i].products) {
      if (!uses(product, at, at + bytes)) continue;
      fail("%s:%d: this copy overwrites what a wgmma of warp %d (%s:%d) may still read", site.file,
           site.line, i, product.site.file, product.site.line);
    }
  }
}

void check_products_at_end(const Fiber& fiber) {
  const Warp& warp = warps[fiber.warp];
  if (!warp.products.empty())
    fail("%s:%d: thread ends with %zu wgmma not waited for", warp.products[0].site.file,
         warp.products[0].site.line, warp.products.size());
}

void begin_products() {
  for (Warp& warp : warps) {
    warp.is_fenced = false;
    warp.num_asked = 0;
  }
  for (auto& asked : asked_of) asked.clear();
}

void end_products() {
  for (int i = 0; i < kWarpsMax; i++) {
    const auto& asked = asked_of[i / kWarpsOfGroup];
    if (asked.size() == warps[i].num_asked || asked.empty()) continue;
    running = &fibers[i * kLanes];
    fail("%s:%d: warp %d has asked for %zu wgmma, another of its warpgroup for %zu",
         asked[0].site.file, asked[0].site.line, i, warps[i].num_asked, asked.size());
  }
}

}  // namespace emulate
