// What the selftest's cases have in common: a context, buffers, launches, and how a case says that
// something is not as it should be. It calls the stand-in driver exactly as a program would.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

#include "../driver/cuda_api.h"

extern "C" {
CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext*, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize();
CUresult cuMemAlloc_v2(CUdeviceptr*, size_t);
CUresult cuMemAllocAsync(CUdeviceptr*, size_t, CUstream);
CUresult cuMemFree_v2(CUdeviceptr);
CUresult cuMemFreeAsync(CUdeviceptr, CUstream);
CUresult cuMemGetInfo_v2(size_t*, size_t*);
CUresult cuMemHostAlloc(void**, size_t, unsigned);
CUresult cuMemFreeHost(void*);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t);
CUresult cuMemcpyDtoH_v2(void*, CUdeviceptr, size_t);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void*, size_t, CUstream);
CUresult cuMemcpyDtoHAsync_v2(void*, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuModuleLoadData(CUmodule*, const void*);
CUresult cuModuleGetFunction(CUfunction*, CUmodule, const char*);
CUresult cuFuncSetAttribute(CUfunction, int, int);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream, void**, void**);
CUresult cuStreamCreate(CUstream*, unsigned);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode);
CUresult cuStreamEndCapture(CUstream, CUgraph*);
CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus*);
CUresult cuEventCreate(CUevent*, unsigned);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventSynchronize(CUevent);
CUresult cuEventElapsedTime_v2(float*, CUevent, CUevent);
CUresult cuGraphInstantiateWithFlags(CUgraphExec*, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuGraphExecDestroy(CUgraphExec);
CUresult cuGraphDestroy(CUgraph);
CUresult cuGraphGetNodes(CUgraph, CUgraphNode*, size_t*);
CUresult cuGraphNodeGetType(CUgraphNode, CUgraphNodeType*);
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode,
                                           const CUDA_KERNEL_NODE_PARAMS*);
CUresult cuGetErrorName(CUresult, const char**);
void emulate_set_seed(uint64_t);
void emulate_lose_after(int64_t);
void emulate_report(char*, size_t);
}

// The status of a process whose case did not hold; 0 if it did.
constexpr int kWrong = 1;

inline const char* name_of(CUresult code) {
  const char* name = nullptr;
  cuGetErrorName(code, &name);
  return name ? name : "?";
}

inline void expect(CUresult wanted, CUresult got, const char* call, int line) {
  if (got == wanted) return;
  printf("line %d: %s gave %s, expected %s\n", line, call, name_of(got), name_of(wanted));
  exit(kWrong);
}
#define OK(call) expect(CUDA_SUCCESS, call, #call, __LINE__)
#define REFUSED(code, call) expect(code, call, #call, __LINE__)

inline void expect_that(bool holds, const char* what, int line) {
  if (holds) return;
  printf("line %d: not so: %s\n", line, what);
  exit(kWrong);
}
#define HOLDS(what) expect_that(what, #what, __LINE__)

CUfunction kernel(const char* name);

template <class... A>
CUresult try_launch(CUstream stream, const char* name, unsigned blocks, unsigned threads,
                    unsigned shared_bytes, A... arguments) {
  void* pointers[] = {&arguments..., nullptr};
  return cuLaunchKernel(kernel(name), blocks, 1, 1, threads, 1, 1, shared_bytes, stream, pointers,
                        nullptr);
}

// Device memory of `len` values.
template <class T>
struct Buffer {
  CUdeviceptr pointer;
  size_t len;

  explicit Buffer(size_t n) : len(n) { OK(cuMemAlloc_v2(&pointer, n * sizeof(T))); }
  explicit Buffer(const std::vector<T>& values) : Buffer(values.size()) { set(values); }
  ~Buffer() { OK(cuMemFree_v2(pointer)); }
  Buffer(const Buffer&) = delete;

  void set(const std::vector<T>& values) {
    OK(cuMemcpyHtoD_v2(pointer, values.data(), len * sizeof(T)));
    OK(cuCtxSynchronize());
  }
  std::vector<T> get() const {
    std::vector<T> values(len);
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH_v2(values.data(), pointer, len * sizeof(T)));
    return values;
  }
};

inline std::vector<int> numbers(size_t len, int factor = 1) {
  std::vector<int> values(len);
  for (size_t i = 0; i < len; i++) values[i] = (int)(i * 2654435761u >> 8) % 1000 * factor;
  return values;
}

// A case is given the words that follow its name on the command line.
typedef std::vector<std::string> Words;
typedef void (*Case)(const Words& words);
struct Named {
  const char* name;
  Case run;
};
extern const std::vector<Named> kernel_cases, stream_cases, graph_cases, driver_cases;
