// Cases about single kernels: instructions, misuses, and planted faults over many seeds.
#include "host.h"

namespace {

uint64_t to_number(const std::string& word) { return strtoull(word.c_str(), nullptr, 10); }

// Launches a kernel of misuse.cu; coming back at all means that nothing was refused.
void misuse(const Words& words) {
  Buffer<int> out(256);
  unsigned shared = words[0] == "past_end_of_dynamic" ? 256 : 0;
  unsigned threads = words[0] == "mma_of_half_a_warp" ? 48 : 64;
  int n = 256;
  if (words[0].find("past_end_of") == 0) n = 1;
  if (words.size() > 1) emulate_set_seed(to_number(words[1]));
  OK(try_launch(nullptr, words[0].c_str(), 1, threads, shared, out.pointer, n));
  out.get();
  printf("not refused\n");
}

// planted 0 or 1: whether the kernels were built with a fault.
void planted(const Words& words) {
  Buffer<int> out(64);
  OK(try_launch(nullptr, "tells_planted", 1, 64, 0, out.pointer));
  HOLDS(out.get()[5] == (int)to_number(words[0]));
}

// A write so close behind the end that no page protects it is seen when the memory is freed.
void slack_at_free(const Words&) {
  {
    Buffer<int> out(250);
    OK(try_launch(nullptr, "one_past_end", 1, 64, 0, out.pointer, 250));
    out.get();
  }
  printf("not refused\n");
}

std::vector<int> run_fault(const std::string& name, int fault) {
  auto input = numbers(2048);
  Buffer<int> in(input), out(std::vector<int>(256, 0));
  unsigned shared = name == "double_buffer" ? 2048 : 0;
  const char* k = name.c_str();
  CUdeviceptr o = out.pointer, i = in.pointer;
  if (name == "tree_sum") OK(try_launch(nullptr, k, 8, 256, 0, o, i, fault));
  if (name == "rotate_warp") OK(try_launch(nullptr, k, 1, 64, 0, o, i, fault));
  if (name == "histogram") OK(try_launch(nullptr, k, 16, 128, 0, o, i, 2000, fault));
  if (name == "double_buffer") OK(try_launch(nullptr, k, 1, 64, shared, o, i, 8, fault));
  if (name == "template_shared") OK(try_launch(nullptr, k, 1, 64, 0, o, fault));
  if (name == "between_blocks") OK(try_launch(nullptr, k, 8, 32, 0, o, fault));
  return out.get();
}

std::vector<int> reference(const std::string& name) {
  auto input = numbers(2048);
  std::vector<int> out(256, 0);
  for (int t = 0; t < 64; t++) {
    if (name == "rotate_warp") out[t] = input[(t & 32) | ((t + 1) & 31)];
    if (name == "template_shared") out[t] = 63 - t;
    if (name != "double_buffer") continue;
    for (int tile = 0; tile < 8; tile++)
      for (int i = 0; i < 4; i++) out[t] += (tile + 1) * input[tile * 256 + i * 64 + 63 - t];
  }
  if (name == "tree_sum")
    for (int i = 0; i < 2048; i++) out[i / 256] += input[i];
  if (name == "histogram")
    for (int i = 0; i < 2000; i++) out[input[i] & 15]++;
  if (name == "between_blocks") out[0] = 7;
  return out;
}

// fault NAME FAULT FIRST LAST: how many of these seeds give a wrong result.
void fault(const Words& words) {
  int wrong = 0;
  for (uint64_t seed = to_number(words[2]); seed <= to_number(words[3]); seed++) {
    emulate_set_seed(seed);
    wrong += run_fault(words[0], (int)to_number(words[1])) != reference(words[0]);
  }
  printf("%d seeds wrong\n", wrong);
}

// The fragments against the strides that CUTLASS publishes for SM80_16x8x32_S32S8S8S32_TN, which
// know nothing of how the emulator computes its own.
void mma_fragments(const Words&) {
  std::vector<unsigned> a(128, 0), b(64, 0);
  std::vector<int> c(128), dense_a(16 * 32), dense_b(32 * 8), dense_c(16 * 8);
  for (int i = 0; i < 512; i++) dense_a[i] = (int8_t)(i * 37 + 11);
  for (int i = 0; i < 256; i++) dense_b[i] = (int8_t)(i * 53 + 7);
  for (int i = 0; i < 128; i++) dense_c[i] = i * 1000003;
  // Dense matrices lie as the strides say: A by columns of 16, B of 8, C of 16.
  for (int lane = 0; lane < 32; lane++) {
    int t = lane % 4, g = lane / 4;
    for (int i = 0; i < 16; i++) {
      int at = t * 64 + g + i % 4 * 16 + i / 4 % 2 * 8 + i / 8 * 256;
      a[lane * 4 + i / 4] |= (unsigned)(uint8_t)dense_a[at] << (8 * (i % 4));
    }
    for (int i = 0; i < 8; i++) {
      int at = t * 32 + g + i % 4 * 8 + i / 4 * 128;
      b[lane * 2 + i / 4] |= (unsigned)(uint8_t)dense_b[at] << (8 * (i % 4));
    }
    for (int i = 0; i < 4; i++) c[lane * 4 + i] = dense_c[t * 32 + g + i % 2 * 16 + i / 2 * 8];
  }
  Buffer<unsigned> device_a(a), device_b(b);
  Buffer<int> device_c(c);
  OK(try_launch(nullptr, "mma_probe", 1, 32, 0, device_c.pointer, device_a.pointer,
                device_b.pointer));
  c = device_c.get();
  for (int lane = 0; lane < 32; lane++) {
    for (int i = 0; i < 4; i++) {
      int at = lane % 4 * 32 + lane / 4 + i % 2 * 16 + i / 2 * 8, row = at % 16, column = at / 16;
      int sum = dense_c[at];
      for (int k = 0; k < 32; k++) sum += dense_a[row + k * 16] * dense_b[column + k * 8];
      HOLDS(c[lane * 4 + i] == sum);
    }
  }
}

// products FAULT FIRST LAST [THREADS]: how many of these seeds give a wrong sum. Where a sum lies is what CUTLASS
// publishes as CLayout_64xN: thread (4, 8, 4) by (128, 1, 16), value (2, 2, 8) by (64, 8, 512), columns of 64.
void products(const Words& words) {
  const int tiles = 5;
  std::vector<signed char> in(tiles * 4096);
  for (size_t i = 0; i < in.size(); i++) in[i] = (signed char)(i * 2654435761u >> 13);
  std::vector<int> expected(64 * 64, 0);
  for (int tile = 0; tile < tiles; tile++) {
    for (int at = 0; at < 64 * 64; at++) {
      const signed char* a = &in[tile * 4096 + at % 64 * 16];
      const signed char* b = &in[tile * 4096 + 2048 + at / 64 * 16];
      for (int k = 0; k < 32; k++) {
        int input = k / 16 * 1024 + k % 16;
        expected[at] += a[input] * b[input];
      }
    }
  }
  unsigned threads = words.size() > 3 ? (unsigned)to_number(words[3]) : 128;
  int wrong = 0, fault = (int)to_number(words[0]);
  for (uint64_t seed = to_number(words[1]); seed <= to_number(words[2]); seed++) {
    emulate_set_seed(seed);
    Buffer<signed char> device_in(in);
    Buffer<int> out(64 * 64);
    OK(try_launch(nullptr, "product_tiles", 1, threads, 8192, out.pointer, device_in.pointer, tiles,
                  fault));
    auto got = out.get();
    bool same = true;
    for (int t = 0; t < 128; t++) {
      for (int v = 0; v < 32; v++) {
        int at = t % 4 * 128 + t / 4 % 8 + t / 32 * 16 + v % 2 * 64 + v / 2 % 2 * 8 + v / 4 * 512;
        same = same && got[t * 32 + v] == expected[at];
      }
    }
    wrong += !same;
  }
  printf("%d seeds wrong\n", wrong);
}

void warp_values(const Words&) {
  for (uint64_t seed = 0; seed < 8; seed++) {
    emulate_set_seed(seed);
    Buffer<long long> out(320);
    OK(try_launch(nullptr, "warp_probe", 1, 32, 0, out.pointer));
    auto got = out.get();
    for (long long lane = 0; lane < 32; lane++) {
      long long wanted[10] = {35,
                              lane < 3 ? lane : lane - 3,
                              lane > 28 ? lane : lane + 3,
                              (lane ^ 4) << 40,
                              (lane / 8 * 8 + 1) / 2,
                              0x49249249,
                              31ll << 27,
                              -16,
                              11 * 100 + 10,
                              496};
      for (int i = 0; i < 10; i++) HOLDS(got[lane * 10 + i] == wanted[i]);
    }
  }
}

void arithmetic(const Words&) {
  const unsigned product = (unsigned)((0xdeadbeefull * 0xcafebabeull) >> 32);
  const std::vector<long long> wanted = {
      2,
      -4,
      -2,
      0x7fffffff,
      -0x80000000ll,
      0,
      0,
      -1,  // saturated: all bits
      (long long)0x8000000000000000ull,
      999999984306749440ll,  // the float next to 1e18
      0x5f000001,  // just above the middle: up
      -0x80000000ll,
      product,
      (long long)(((unsigned __int128)0xdeadbeefcafebabeull * 0x123456789abcdef0ull) >> 64),
      5 + 0x7f * -128 + -128 * -128 + -1 * 0x7f + 1 * 2,
      0x07000400,  // nibbles 0, 4, a, 7 from below: byte 0, 4, the sign of byte 2, byte 7
      0x3f80,      // a tie goes to the even one
      0x7fff,
      0x33800000,
      0x7bff,
      0x7c00,
      0x3a000400,  // fused: the small square is kept
      0x3a000000,
      31 * 100 + 8,
  };
  Buffer<long long> out(wanted.size());
  float nan, big = 3e9f;
  unsigned nan_bits = 0xffc00001u;
  memcpy(&nan, &nan_bits, 4);
  OK(try_launch(nullptr, "arithmetic_probe", 1, 1, 0, out.pointer, nan, big));
  auto got = out.get();
  for (size_t i = 0; i < wanted.size(); i++) {
    if (got[i] == wanted[i]) continue;
    printf("number %zu is 0x%llx, expected 0x%llx\n", i, got[i], wanted[i]);
    exit(kWrong);
  }
}

void halves(const Words&) {
  Buffer<int> wrong(std::vector<int>(1, 0));
  OK(try_launch(nullptr, "half_round_trip", 256, 256, 0, wrong.pointer));
  HOLDS(wrong.get()[0] == 0);
}

void atomics(const Words&) {
  for (uint64_t seed = 0; seed < 4; seed++) {
    emulate_set_seed(seed);
    Buffer<unsigned long long> out(std::vector<unsigned long long>{0, 0, ~0ull, 0});
    OK(try_launch(nullptr, "atomic_probe", 1, 64, 0, out.pointer));
    auto got = out.get();
    HOLDS(got[0] == 1 + (63ull * 64 / 2 << 33));
    HOLDS(got[1] == 63ull << 33);
    HOLDS(got[2] == 7);
    HOLDS(got[3] == 64);
  }
}

// Its size changes from launch to launch, and some have none.
void dynamic_shared(const Words&) {
  Buffer<int> out(64);
  for (unsigned bytes : {256, 512, 300, 256}) {
    OK(try_launch(nullptr, "dynamic_reverse", 1, 64, bytes, out.pointer));
    auto got = out.get();
    for (int i = 0; i < 64; i++) HOLDS(got[i] == (63 - i) * 3);
    OK(try_launch(nullptr, "add_to", 1, 64, 0, out.pointer, out.pointer, 64, 1));
    OK(try_launch(nullptr, "add_to", 1, 64, 0, out.pointer, out.pointer, 64, 1));
    HOLDS(out.get()[63] == 2);
  }
}

}  // namespace

const std::vector<Named> kernel_cases = {
    {"misuse", misuse},         {"planted", planted},
    {"slack_at_free", slack_at_free},
          {"fault", fault},       {"mma_fragments", mma_fragments}, {"products", products},
    {"warp_values", warp_values}, {"arithmetic", arithmetic}, {"halves", halves},
    {"atomics", atomics},       {"dynamic_shared", dynamic_shared},
};
