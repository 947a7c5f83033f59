// Entry points for modules, functions and launches. An image holds no code here: it says from which
// source it was made, and the kernels of the library that was built from the very same source stand
// for it.
#include <string.h>

#include <map>
#include <set>

#include "device.h"
#include "graphs.h"
#include "modules.h"
#include "streams.h"

using namespace emulate;

namespace {

struct Module {
  uint64_t source_hash;
  std::map<std::string, Function*> functions;
};
std::set<Module*> modules;
std::set<Function*> functions;

Module* find_module(CUmodule handle) {
  auto* module = reinterpret_cast<Module*>(handle);
  return modules.count(module) ? module : nullptr;
}

bool any_source() { return getenv("EMULATE_ANY_SOURCE") != nullptr; }

// The length of an image is not told. The mark stands right behind what begins an image of the
// stand-in compiler, so nothing beyond that is looked at.
bool read_mark(const char* image, uint64_t* hash) {
  const char mark[] = EMULATE_IMAGE_MARK;
  const char* heads[] = {"\x7f" "ELF", ".version 9.0\n// "};
  for (const char* head : heads) {
    size_t len = strlen(head);
    if (strncmp(image, head, len) || strncmp(image + len, mark, sizeof mark - 1)) continue;
    *hash = strtoull(image + len + sizeof mark - 1, nullptr, 16);
    return true;
  }
  return false;
}

CUresult load(const char* image, Module** loaded) {
  bool is_elf = !memcmp(image, "\x7f" "ELF", 4);
  uint64_t hash = 0;
  bool marked = read_mark(image, &hash);
  if (!marked && !is_elf && !strstr(image, ".version")) return CUDA_ERROR_INVALID_IMAGE;
  if (!any_source() && (!marked || !is_known_source(hash))) {
    if (marked)
      fprintf(stderr,
              "EMULATE: libkernels.so was not built from this source (hash %016llx, %zu sources "
              "known): run build.sh\n",
              (unsigned long long)hash, sources_len());
    else
      fprintf(stderr, "EMULATE: this image was not made by the stand-in compiler\n");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  *loaded = new Module{hash, {}};
  modules.insert(*loaded);
  return CUDA_SUCCESS;
}

}  // namespace

namespace emulate {

Function* find_function(CUfunction handle) {
  auto* function = reinterpret_cast<Function*>(handle);
  return functions.count(function) ? function : nullptr;
}

}  // namespace emulate

extern "C" {

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  EMULATE_ENTER();
  if (CUresult refused = refuse_in_capture()) return refused;
  Module* module = nullptr;
  CUresult result = load(static_cast<const char*>(image), &module);
  *handle = reinterpret_cast<CUmodule>(module);
  return result;
}
CUresult cuModuleLoadDataEx(CUmodule* handle, const void* image, unsigned, int*, void**) {
  return cuModuleLoadData(handle, image);
}

CUresult cuModuleLoad(CUmodule* handle, const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
  std::string image;
  char chunk[4096];
  for (size_t len; (len = fread(chunk, 1, sizeof chunk, file)) > 0;) image.append(chunk, len);
  fclose(file);
  return cuModuleLoadData(handle, image.c_str());
}

CUresult cuModuleUnload(CUmodule handle) {
  EMULATE_ENTER();
  Module* module = find_module(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult refused = refuse_in_capture()) return refused;
  force_all();
  for (auto& entry : module->functions) {
    functions.erase(entry.second);
    delete entry.second;
  }
  modules.erase(module);
  delete module;
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
  EMULATE_ENTER();
  Module* module = find_module(module_handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  Function*& function = module->functions[name];
  if (!function) {
    const Kernel* kernel = find_kernel(name, module->source_hash, any_source());
    if (!kernel) {
      module->functions.erase(name);
      return CUDA_ERROR_NOT_FOUND;
    }
    function = new Function{kernel, module->source_hash, 48 << 10};
    functions.insert(function);
  }
  *handle = reinterpret_cast<CUfunction>(function);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule, const char*) {
  return CUDA_ERROR_NOT_FOUND;
}

// Registers and spills are the real compiler's to tell (tools/cuda_compile.py).
CUresult cuFuncGetAttribute(int* value, int attribute, CUfunction handle) {
  EMULATE_ENTER();
  Function* function = find_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = threads_max(*function->kernel);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 90;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = function->dynamic_shared_max;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, int attribute, int value) {
  EMULATE_ENTER();
  Function* function = find_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > (int)kSharedMax) return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_shared_max = value;
    return CUDA_SUCCESS;
  }
  return attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuFuncSetCacheConfig(CUfunction, int) { return CUDA_SUCCESS; }

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream handle, void** parameters, void** extra) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_KERNEL_NODE_PARAMS asked{function, grid_x,  grid_y,       grid_z,     block_x, block_y,
                                block_z,  shared_bytes, parameters, extra,   nullptr, nullptr};
  std::shared_ptr<KernelCall> call;
  if (CUresult refused = make_call(asked, &call)) return refused;
  auto run = [call] { run_call(*call); };
  return submit(stream, {WorkKind::kernel, call->kernel->name, run, {}, call});
}

// Blocks run one after another, so none can wait for another.
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, CUstream, void**) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

// An upper bound from threads and shared memory; registers are unknown here.
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle,
                                                              int threads, size_t shared_bytes,
                                                              unsigned) {
  EMULATE_ENTER();
  if (!find_function(handle)) return CUDA_ERROR_INVALID_HANDLE;
  if (threads < 1 || threads > kThreadsMax) return CUDA_ERROR_INVALID_VALUE;
  int by_threads = 2048 / ((threads + 31) / 32 * 32);
  int by_shared = (int)(233472 / (shared_bytes + 1024));
  *blocks = std::min({32, by_threads, by_shared});
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                     size_t shared_bytes) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, shared_bytes,
                                                              0);
}

}  // extern "C"
