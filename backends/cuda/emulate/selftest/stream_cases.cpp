// Cases about streams: order is kept where the interface promises it, and where it does not, some
// seed shows it.
#include "host.h"

namespace {

constexpr int kLen = 256;
constexpr uint64_t kSeeds = 20;

CUstream new_stream() {
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUresult add(CUstream stream, CUdeviceptr out, CUdeviceptr in, int amount) {
  return try_launch(stream, "add_to", 1, kLen, 0, out, in, kLen, amount);
}

bool is_sum(const int* values, int base) {
  for (int i = 0; i < kLen; i++)
    if (values[i] != base + i) return false;
  return true;
}

std::vector<int> ramp() {
  std::vector<int> values(kLen);
  for (int i = 0; i < kLen; i++) values[i] = i;
  return values;
}

// Counts the seeds under which `works` gives a wrong result, and compares with what must be so.
template <class F>
void over_seeds(bool faulty, F works) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < kSeeds; seed++) {
    emulate_set_seed(seed);
    if (!works()) wrong++;
  }
  printf("%d of %d seeds wrong\n", wrong, (int)kSeeds);
  HOLDS(faulty ? wrong > 0 : wrong == 0);
}

bool is_faulty(const Words& words) { return !words.empty() && words[0] == "faulty"; }

// One stream writes, the other reads, with and without an event between them.
void wait_for_other_stream(const Words& words) {
  bool faulty = is_faulty(words);
  over_seeds(faulty, [=] {
    Buffer<int> in(ramp()), middle(kLen), out(kLen);
    CUstream first = new_stream(), second = new_stream();
    CUevent written;
    OK(cuEventCreate(&written, CU_EVENT_DISABLE_TIMING));
    OK(add(first, middle.pointer, in.pointer, 100));
    OK(cuEventRecord(written, first));
    if (!faulty) OK(cuStreamWaitEvent(second, written, 0));
    OK(add(second, out.pointer, middle.pointer, 1000));
    OK(cuStreamSynchronize(second));
    std::vector<int> got(kLen);
    OK(cuMemcpyDtoHAsync_v2(got.data(), out.pointer, kLen * 4, second));
    OK(cuEventDestroy_v2(written));
    OK(cuStreamDestroy_v2(first));
    OK(cuStreamDestroy_v2(second));
    return is_sum(got.data(), 1100);
  });
}

// The host looks at pinned memory with and without waiting for the copy to it.
void read_after_copy(const Words& words) {
  bool faulty = is_faulty(words);
  over_seeds(faulty, [=] {
    Buffer<int> in(ramp()), out(kLen);
    int* host;
    OK(cuMemHostAlloc((void**)&host, kLen * 4, 0));
    CUstream stream = new_stream();
    OK(add(stream, out.pointer, in.pointer, 5));
    OK(cuMemcpyDtoHAsync_v2(host, out.pointer, kLen * 4, stream));
    if (!faulty) OK(cuStreamSynchronize(stream));
    bool right = is_sum(host, 5);
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFreeHost(host));
    return right;
  });
}

// The host fills pinned memory again with and without waiting for the copy from it.
void reuse_of_source(const Words& words) {
  bool faulty = is_faulty(words);
  over_seeds(faulty, [=] {
    Buffer<int> out(kLen);
    int* host;
    OK(cuMemHostAlloc((void**)&host, kLen * 4, 0));
    CUstream stream = new_stream();
    CUevent copied;
    OK(cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < kLen; i++) host[i] = 7 + i;
    OK(cuMemcpyHtoDAsync_v2(out.pointer, host, kLen * 4, stream));
    OK(cuEventRecord(copied, stream));
    if (!faulty) OK(cuEventSynchronize(copied));
    memset(host, 0, kLen * 4);
    auto got = out.get();
    OK(cuEventDestroy_v2(copied));
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFreeHost(host));
    return is_sum(got.data(), 7);
  });
}

// Streams made as non-blocking don't wait for the legacy one, so a fill without a stream needs a
// wait before they read.
void legacy_stream(const Words& words) {
  bool faulty = is_faulty(words);
  over_seeds(faulty, [=] {
    Buffer<int> in(ramp()), out(kLen);
    CUstream stream;
    OK(cuStreamCreate(&stream, faulty ? CU_STREAM_NON_BLOCKING : 0));
    OK(cuMemsetD8Async(in.pointer, 0, kLen * 4, nullptr));
    OK(add(stream, out.pointer, in.pointer, 3));
    auto got = out.get();
    OK(cuStreamDestroy_v2(stream));
    return got[kLen - 1] == 3;
  });
}

// Memory that one stream allocates is another's only after an event.
void allocated_elsewhere(const Words& words) {
  bool faulty = is_faulty(words);
  over_seeds(faulty, [=] {
    Buffer<int> in(ramp());
    CUstream first = new_stream(), second = new_stream();
    CUevent made;
    OK(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
    CUdeviceptr out;
    OK(cuMemAllocAsync(&out, kLen * 4, first));
    OK(cuEventRecord(made, first));
    if (!faulty) OK(cuStreamWaitEvent(second, made, 0));
    OK(add(second, out, in.pointer, 1));
    OK(cuCtxSynchronize());
    std::vector<int> got(kLen);
    OK(cuMemcpyDtoH_v2(got.data(), out, kLen * 4));
    OK(cuMemFreeAsync(out, first));
    OK(cuEventDestroy_v2(made));
    OK(cuStreamDestroy_v2(first));
    OK(cuStreamDestroy_v2(second));
    return is_sum(got.data(), 1);
  });
}

// A program that only asks whether an event has passed must see it pass.
void polling(const Words&) {
  for (uint64_t seed = 0; seed < kSeeds; seed++) {
    emulate_set_seed(seed);
    Buffer<int> in(ramp()), out(kLen);
    CUstream stream = new_stream();
    CUevent begin, end;
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    REFUSED(CUDA_SUCCESS, cuEventQuery(end));
    OK(cuEventRecord(begin, stream));
    for (int i = 0; i < 8; i++) OK(add(stream, out.pointer, in.pointer, i));
    OK(cuEventRecord(end, stream));
    int asked = 0;
    while (cuEventQuery(end) == CUDA_ERROR_NOT_READY) HOLDS(++asked < 100);
    HOLDS(seed == 1 ? asked == 0 : seed != 0 || asked > 0);
    float ms = -1;
    OK(cuEventElapsedTime_v2(&ms, begin, end));
    HOLDS(ms > 0 && ms < 60000);
    OK(cuEventDestroy_v2(begin));
    OK(cuEventDestroy_v2(end));
    OK(cuStreamDestroy_v2(stream));
  }
}

// Pageable memory is read when a copy is queued and written before the call returns.
void pageable(const Words&) {
  over_seeds(false, [] {
    Buffer<int> in(kLen), out(kLen);
    CUstream stream = new_stream();
    {
      auto gone = ramp();
      OK(cuMemcpyHtoDAsync_v2(in.pointer, gone.data(), kLen * 4, stream));
      memset(gone.data(), 0, kLen * 4);
    }
    OK(add(stream, out.pointer, in.pointer, 9));
    std::vector<int> got(kLen);
    OK(cuMemcpyDtoHAsync_v2(got.data(), out.pointer, kLen * 4, stream));
    OK(cuStreamDestroy_v2(stream));
    return is_sum(got.data(), 9);
  });
}

void pinned_freed_too_early(const Words&) {
  emulate_set_seed(0);
  Buffer<int> out(kLen);
  int* host;
  OK(cuMemHostAlloc((void**)&host, kLen * 4, 0));
  OK(cuMemcpyHtoDAsync_v2(out.pointer, host, kLen * 4, new_stream()));
  OK(cuMemFreeHost(host));
  printf("not refused\n");
}

}  // namespace

const std::vector<Named> stream_cases = {
    {"wait_for_other_stream", wait_for_other_stream},
    {"read_after_copy", read_after_copy},
    {"reuse_of_source", reuse_of_source},
    {"legacy_stream", legacy_stream},
    {"allocated_elsewhere", allocated_elsewhere},
    {"polling", polling},
    {"pageable", pageable},
    {"pinned_freed_too_early", pinned_freed_too_early},
};
