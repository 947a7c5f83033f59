// Cases about the driver's own refusals: memory, launches, images, and a device that is lost.
#include <thread>

#include "host.h"

namespace {

std::string report() {
  char text[512];
  emulate_report(text, sizeof text);
  return text;
}

bool reports(const char* part) { return report().find(part) != std::string::npos; }

void bad_copies(const Words&) {
  Buffer<char> a(1000), b(1000);
  std::vector<char> host(2000);
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(a.pointer, host.data(), 1001));
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(a.pointer + 1, host.data(), 1000));
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(host.data(), a.pointer - 1, 1));
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync_v2(a.pointer, b.pointer + 1, 1000, nullptr));
  REFUSED(CUDA_ERROR_INVALID_VALUE,
          cuMemcpyDtoDAsync_v2(a.pointer, a.pointer + 10, 100, nullptr));
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(a.pointer, 0, 1001, nullptr));
  OK(cuMemcpyHtoD_v2(a.pointer, host.data(), 1000));
  CUdeviceptr gone;
  OK(cuMemAlloc_v2(&gone, 100));
  OK(cuMemFree_v2(gone));
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(gone, host.data(), 1));
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(gone));
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(a.pointer + 256));
  OK(cuMemAllocAsync(&gone, 100, nullptr));
  OK(cuMemFreeAsync(gone, nullptr));
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(gone, nullptr));
  REFUSED(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(gone, 0, 1, nullptr));
}

void leaks(const Words&) {
  HOLDS(reports("\"leaked_bytes\": 0") && reports("\"leaked_allocations\": 0"));
  CUdeviceptr pointer;
  OK(cuMemAlloc_v2(&pointer, 1234));
  HOLDS(reports("\"leaked_bytes\": 1234") && reports("\"leaked_allocations\": 1"));
  OK(cuMemFree_v2(pointer));
  HOLDS(reports("\"leaked_bytes\": 0"));
  OK(cuMemAlloc_v2(&pointer, 77));
}

// Fresh memory is neither zero nor a number.
void fresh_memory(const Words&) {
  Buffer<float> a(1000);
  for (float value : a.get()) HOLDS(value != value);
  // Big ones are shown NaN instead of filled; each word, and only those that were written to.
  Buffer<float> big((40 << 20) / 4 + 100);
  std::vector<float> ones(5000, 1.0f);
  OK(cuMemcpyHtoD_v2(big.pointer + (17 << 20), ones.data(), ones.size() * 4));
  auto got = big.get();
  size_t from = (17 << 20) / 4;
  for (size_t i = 0; i < got.size(); i++) {
    bool written = i >= from && i < from + ones.size();
    HOLDS(written ? got[i] == 1.0f : got[i] != got[i]);
  }
}

// Run with EMULATE_MEMORY=1000000.
void capacity(const Words&) {
  size_t free_bytes, total_bytes;
  CUdeviceptr a, b;
  OK(cuMemAlloc_v2(&a, 600000));
  OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
  HOLDS(free_bytes == 400000 && total_bytes == 1000000);
  REFUSED(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&b, 400001));
  REFUSED(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&b, 400001, nullptr));
  OK(cuMemAlloc_v2(&b, 400000));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
}

void bad_launches(const Words&) {
  Buffer<int> out(64);
  const CUresult invalid = CUDA_ERROR_INVALID_VALUE;
  REFUSED(invalid, try_launch(nullptr, "dynamic_reverse", 0, 64, 256, out.pointer));
  REFUSED(invalid, try_launch(nullptr, "dynamic_reverse", 1, 0, 256, out.pointer));
  REFUSED(invalid, try_launch(nullptr, "dynamic_reverse", 1, 1025, 256, out.pointer));
  REFUSED(invalid, try_launch(nullptr, "dynamic_reverse", 1, 64, 49153, out.pointer));
  REFUSED(invalid, try_launch(nullptr, "dynamic_reverse", 1, 129, 1024, out.pointer));
  OK(try_launch(nullptr, "dynamic_reverse", 1, 64, 49152, out.pointer));
  CUfunction function = kernel("dynamic_reverse");
  REFUSED(invalid, cuFuncSetAttribute(function, 8, 232449));
  OK(cuFuncSetAttribute(function, 8, 100000));
  OK(try_launch(nullptr, "dynamic_reverse", 1, 64, 100000, out.pointer));
  REFUSED(invalid, try_launch(nullptr, "dynamic_reverse", 1, 64, 100001, out.pointer));
  void* none[] = {&out.pointer};
  REFUSED(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel((CUfunction)none, 1, 1, 1, 1, 1, 1, 0, nullptr, none, nullptr));
  REFUSED(CUDA_ERROR_INVALID_HANDLE, try_launch((CUstream)none, "dynamic_reverse", 1, 64, 256,
                                                out.pointer));
  CUmodule module;
  OK(cuModuleLoadData(&module, "\x7f" "ELF"));
  REFUSED(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "no_such_kernel"));
  REFUSED(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "nonsense"));
}

void wild_argument(const Words&) {
  Buffer<int> out(64);
  std::vector<int> host(64);
  try_launch(nullptr, "add_to", 1, 64, 0, out.pointer, host.data(), 64, 1);
  printf("not refused\n");
}

void no_context(const Words&) {
  CUresult got = CUDA_SUCCESS;
  std::thread([&] { got = cuCtxSynchronize(); }).join();
  HOLDS(got == CUDA_ERROR_INVALID_CONTEXT);
}

// After two kernels everything fails, and what was to be copied never arrives.
void lost(const Words&) {
  for (uint64_t seed = 0; seed < 10; seed++) {
    emulate_set_seed(seed);
    emulate_lose_after(-1);
    Buffer<int> a(numbers(64)), b(64);
    int* host;
    OK(cuMemHostAlloc((void**)&host, 64 * 4, 0));
    CUstream stream;
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CUfunction function = kernel("add_to");
    emulate_lose_after(2);
    for (int i = 0; i < 2; i++)
      OK(try_launch(stream, "add_to", 1, 64, 0, b.pointer, a.pointer, 64, i));
    OK(cuStreamSynchronize(stream));
    // The launch itself may succeed; the wait can't.
    int len = 64, amount = 2;
    void* arguments[] = {&b.pointer, &a.pointer, &len, &amount};
    cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, arguments, nullptr);
    cuMemcpyDtoHAsync_v2(host, b.pointer, 64 * 4, stream);
    const CUresult illegal = CUDA_ERROR_ILLEGAL_ADDRESS;
    REFUSED(illegal, cuStreamSynchronize(stream));
    REFUSED(illegal, cuStreamSynchronize(stream));
    REFUSED(illegal, cuCtxSynchronize());
    REFUSED(illegal, cuMemFree_v2(b.pointer));
    HOLDS(host[1] != numbers(64)[1] + 1);
    emulate_lose_after(-1);
    OK(cuMemFreeHost(host));
    OK(cuStreamDestroy_v2(stream));
  }
}

// Run with EMULATE_SEED=5 and EMULATE_LOST_AFTER=1.
void environment(const Words&) {
  HOLDS(reports("\"seed\": 5}"));
  Buffer<int> a(numbers(64));
  OK(try_launch(nullptr, "add_to", 1, 64, 0, a.pointer, a.pointer, 64, 1));
  OK(cuCtxSynchronize());
  try_launch(nullptr, "add_to", 1, 64, 0, a.pointer, a.pointer, 64, 1);
  REFUSED(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
  emulate_lose_after(-1);
}

// image FILE WANTED: run without EMULATE_ANY_SOURCE.
void image(const Words& words) {
  FILE* file = fopen(words[0].c_str(), "rb");
  HOLDS(file);
  char text[4096] = {};
  HOLDS(fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  CUmodule module;
  CUresult wanted = words[1] == "known" ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
  REFUSED(wanted, cuModuleLoadData(&module, text));
  if (wanted) return;
  CUfunction function;
  OK(cuModuleGetFunction(&function, module, "add_to"));
  // A kernel of another file is not in this module.
  REFUSED(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "tree_sum"));
}

}  // namespace

const std::vector<Named> driver_cases = {
    {"bad_copies", bad_copies},       {"leaks", leaks},         {"fresh_memory", fresh_memory},
    {"capacity", capacity},           {"bad_launches", bad_launches},
    {"wild_argument", wild_argument}, {"no_context", no_context},
    {"lost", lost},                   {"environment", environment},
    {"image", image},
};
