// Entry points about the driver, the device and its contexts. There is one device and one context.
#include <string.h>

#include "device.h"
#include "graphs.h"
#include "memory.h"
#include "modules.h"
#include "streams.h"

using namespace emulate;

namespace {

CUcontext the_context() { return reinterpret_cast<CUcontext>(0x10); }

struct Attribute {
  int number, value;
};
// Of an H200. Numbers are those of CUdevice_attribute.
const Attribute attributes[] = {
    {1, 1024},          // MAX_THREADS_PER_BLOCK
    {2, 1024},          // MAX_BLOCK_DIM_X
    {3, 1024},          // MAX_BLOCK_DIM_Y
    {4, 64},            // MAX_BLOCK_DIM_Z
    {5, 0x7fffffff},    // MAX_GRID_DIM_X
    {6, 65535},         // MAX_GRID_DIM_Y
    {7, 65535},         // MAX_GRID_DIM_Z
    {8, 49152},         // MAX_SHARED_MEMORY_PER_BLOCK
    {9, 65536},         // TOTAL_CONSTANT_MEMORY
    {10, 32},           // WARP_SIZE
    {12, 65536},        // MAX_REGISTERS_PER_BLOCK
    {13, 1980000},      // CLOCK_RATE
    {16, 132},          // MULTIPROCESSOR_COUNT
    {31, 1},            // CONCURRENT_KERNELS
    {36, 3201000},      // MEMORY_CLOCK_RATE
    {37, 6144},         // GLOBAL_MEMORY_BUS_WIDTH
    {38, 62914560},     // L2_CACHE_SIZE
    {39, 2048},         // MAX_THREADS_PER_MULTIPROCESSOR
    {40, 3},            // ASYNC_ENGINE_COUNT
    {41, 1},            // UNIFIED_ADDRESSING
    {75, 9},            // COMPUTE_CAPABILITY_MAJOR
    {76, 0},            // COMPUTE_CAPABILITY_MINOR
    {78, 1},            // STREAM_PRIORITIES_SUPPORTED
    {81, 233472},       // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    {82, 65536},        // MAX_REGISTERS_PER_MULTIPROCESSOR
    {97, (int)kSharedMax},  // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    {111, 1024},        // RESERVED_SHARED_MEMORY_PER_BLOCK
    {115, 1},           // MEMORY_POOLS_SUPPORTED
};

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return initialise(); }

CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (!is_initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (!is_initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (ordinal) return CUDA_ERROR_INVALID_DEVICE;
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int len, CUdevice device) {
  if (device) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, (size_t)len, "Lockstep host emulation (sm_90)");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  if (device) return CUDA_ERROR_INVALID_DEVICE;
  memcpy(uuid->bytes, "lockstep-emulate", 16);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

CUresult cuDeviceGetPCIBusId(char* text, int len, CUdevice device) {
  if (device) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(text, (size_t)len, "0000:00:00.0");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, int number, CUdevice device) {
  if (device) return CUDA_ERROR_INVALID_DEVICE;
  *value = 0;
  for (const Attribute& attribute : attributes)
    if (attribute.number == number) *value = attribute.value;
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  if (device) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = memory_capacity();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!is_initialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (device) return CUDA_ERROR_INVALID_DEVICE;
  *context = the_context();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (context && context != the_context()) return CUDA_ERROR_INVALID_CONTEXT;
  current_context() = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current_context();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  EMULATE_ENTER();
  *device = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  EMULATE_ENTER();
  if (is_anything_captured(true)) {
    invalidate_captures();
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  force_all();
  return refuse_call();
}

CUresult cuCtxSetFlags(unsigned) { return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(int, size_t) { return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t* value, int) {
  *value = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCacheConfig(int) { return CUDA_SUCCESS; }
CUresult cuCtxGetCacheConfig(int* config) {
  *config = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return CUDA_SUCCESS;
}
CUresult cuProfilerStart() { return CUDA_SUCCESS; }
CUresult cuProfilerStop() { return CUDA_SUCCESS; }

}  // extern "C"
