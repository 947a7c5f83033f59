// Entry points that the host's bindings look up and this project does not use. They exist so that a
// call says "not supported" instead of ending the process for want of a symbol.
#include "cuda_api.h"

#define UNSUPPORTED(name) \
  CUresult name() { return CUDA_ERROR_NOT_SUPPORTED; }

extern "C" {

UNSUPPORTED(cuCtxCreate_v4)
UNSUPPORTED(cuCtxDestroy_v2)
UNSUPPORTED(cuDestroyExternalMemory)
UNSUPPORTED(cuDeviceGetDefaultMemPool)
UNSUPPORTED(cuDeviceGetMemPool)
UNSUPPORTED(cuDeviceSetMemPool)
UNSUPPORTED(cuExternalMemoryGetMappedBuffer)
UNSUPPORTED(cuImportExternalMemory)
UNSUPPORTED(cuMemAdvise_v2)
UNSUPPORTED(cuMemAllocFromPoolAsync)
UNSUPPORTED(cuMemAllocManaged)
UNSUPPORTED(cuMemPoolCreate)
UNSUPPORTED(cuMemPoolDestroy)
UNSUPPORTED(cuMemPoolGetAttribute)
UNSUPPORTED(cuMemPoolSetAttribute)
UNSUPPORTED(cuMemPoolTrimTo)
UNSUPPORTED(cuMemPrefetchAsync_v2)
UNSUPPORTED(cuMemcpyPeerAsync)
UNSUPPORTED(cuOccupancyAvailableDynamicSMemPerBlock)
UNSUPPORTED(cuOccupancyMaxActiveClusters)
UNSUPPORTED(cuOccupancyMaxPotentialBlockSize)
UNSUPPORTED(cuOccupancyMaxPotentialBlockSizeWithFlags)
UNSUPPORTED(cuOccupancyMaxPotentialClusterSize)
UNSUPPORTED(cuStreamAttachMemAsync)

}  // extern "C"
