// The one device of the stand-in: whether it is still there, and the lock of the whole driver.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "../runtime/runtime.h"
#include "cuda_api.h"

namespace emulate {

std::recursive_mutex& driver_mutex();

// A device is lost after a stated number of kernels: what runs next fails, and so does every call
// from then on.
bool is_lost();
void lose_after(int64_t launches);
// Counts one kernel; false if the device did not live to run it.
bool survives_kernel();

bool is_initialised();
CUcontext& current_context();

// Why a call can't even begin, or success: lost, not initialised, no context bound.
CUresult refuse_call();

// A kernel with the values of its arguments, copied when it was launched or captured.
struct KernelCall {
  CUfunction function;
  const Kernel* kernel;
  dim3 grid, block;
  unsigned shared_bytes;
  std::vector<std::vector<char>> values;
  std::vector<void*> pointers;  // to the values
};
// Checks everything that the driver checks at a launch.
CUresult make_call(const struct CUDA_KERNEL_NODE_PARAMS& asked, std::shared_ptr<KernelCall>* call);
void run_call(const KernelCall& call);

}  // namespace emulate

// The first line of each entry point that needs a device.
#define EMULATE_ENTER()                                                     \
  std::lock_guard<std::recursive_mutex> lock(::emulate::driver_mutex());    \
  if (CUresult refused = ::emulate::refuse_call()) return refused
