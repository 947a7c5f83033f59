// The device itself: what it says of itself, whether it is still there, and what a launch must
// satisfy. The numbers are those of an H200 (sm_90).
#include "device.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "modules.h"
#include "streams.h"

namespace emulate {

namespace {

bool initialised = false;
bool lost = false;
int64_t kernels_left = -1;  // until the device is lost; negative: it never is

struct Segment {
  const char *begin, *end;
};
std::vector<Segment> kernel_segments;  // of libkernels.so, where constants lie

int note_segments(dl_phdr_info* info, size_t, void* path) {
  if (!info->dlpi_name || strcmp(info->dlpi_name, (const char*)path)) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    auto* begin = (const char*)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    kernel_segments.push_back({begin, begin + info->dlpi_phdr[i].p_memsz});
  }
  return 0;
}

bool is_reachable(const void* address, unsigned bytes, bool write) {
  if (is_shared(address)) return is_shared((const char*)address + bytes - 1);
  for (Space space : {Space::device, Space::pinned})
    if (is_reserved(space, address)) return is_live(space, address, bytes);
  if (write) return false;
  for (const Segment& segment : kernel_segments)
    if ((const char*)address >= segment.begin && (const char*)address < segment.end) return true;
  return false;
}

// Where EMULATE_KERNELS says, or else beside this library.
std::string kernels_path() {
  if (const char* path = getenv("EMULATE_KERNELS")) return path;
  Dl_info info;
  if (!dladdr((void*)&kernels_path, &info)) return "libkernels.so";
  std::string own = info.dli_fname;
  return own.substr(0, own.rfind('/') + 1) + "libkernels.so";
}

bool load_kernels() {
  std::string path = kernels_path();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "EMULATE: no kernels: %s\n", dlerror());
    return false;
  }
  link_map* map = nullptr;
  if (!dlinfo(library, RTLD_DI_LINKMAP, &map)) dl_iterate_phdr(note_segments, map->l_name);
  return true;
}

void report_at_exit() {
  bool races = statistics.races != 0;
  if (getenv("EMULATE_STATS") || races)
    fprintf(stderr, "EMULATE: %llu launches, %zu bytes leaked in %zu allocations, %llu races\n",
            (unsigned long long)statistics.launches, memory_in_use(), leaked_allocations(),
            (unsigned long long)statistics.races);
  if (races) _Exit(kMisuseStatus);
}

}  // namespace

std::recursive_mutex& driver_mutex() {
  static auto* mutex = new std::recursive_mutex;
  return *mutex;
}

CUcontext& current_context() {
  static thread_local CUcontext context = nullptr;
  return context;
}

bool is_initialised() { return initialised; }
bool is_lost() { return lost; }

void lose_after(int64_t launches) {
  kernels_left = launches;
  lost = false;
}

bool survives_kernel() {
  if (lost) return false;
  if (kernels_left < 0) return true;
  if (kernels_left-- > 0) return true;
  lost = true;
  drop_all_work();
  return false;
}

CUresult refuse_call() {
  if (!initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (lost) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  return CUDA_SUCCESS;
}

CUresult initialise() {
  std::lock_guard<std::recursive_mutex> lock(driver_mutex());
  if (initialised) return CUDA_SUCCESS;
  if (const char* text = getenv("EMULATE_SEED")) seed = strtoull(text, nullptr, 10);
  if (const char* text = getenv("EMULATE_LOST_AFTER")) lose_after(strtoll(text, nullptr, 10));
  reserve_memory();
  if (!load_kernels()) return CUDA_ERROR_NO_DEVICE;
  end_with_sanitizers();
  may_access = is_reachable;
  reset_stream_draws();
  catch_bad_addresses();
  atexit(report_at_exit);
  initialised = true;
  return CUDA_SUCCESS;
}

CUresult make_call(const CUDA_KERNEL_NODE_PARAMS& asked, std::shared_ptr<KernelCall>* made) {
  const Function* function = find_function(asked.func);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  uint64_t threads = (uint64_t)asked.blockDimX * asked.blockDimY * asked.blockDimZ;
  if (!threads || threads > (uint64_t)kThreadsMax || asked.blockDimX > 1024 ||
      asked.blockDimY > 1024 || asked.blockDimZ > 64)
    return CUDA_ERROR_INVALID_VALUE;
  if (!asked.gridDimX || !asked.gridDimY || !asked.gridDimZ || asked.gridDimX > 0x7fffffffu ||
      asked.gridDimY > 65535 || asked.gridDimZ > 65535)
    return CUDA_ERROR_INVALID_VALUE;
  if (threads > (uint64_t)threads_max(*function->kernel)) {
    fprintf(stderr,
            "EMULATE: kernel %s is launched with %llu threads, its __launch_bounds__ say %d\n",
            function->kernel->name, (unsigned long long)threads, threads_max(*function->kernel));
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (asked.sharedMemBytes > (unsigned)function->dynamic_shared_max) {
    fprintf(stderr,
            "EMULATE: kernel %s asks for %u bytes of dynamic shared memory, %d are allowed\n",
            function->kernel->name, asked.sharedMemBytes, function->dynamic_shared_max);
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Kernel* kernel = function->kernel;
  if (asked.extra || (kernel->parameters_len && !asked.kernelParams))
    return CUDA_ERROR_INVALID_VALUE;

  auto call = std::make_shared<KernelCall>();
  call->function = asked.func;
  call->kernel = kernel;
  call->grid = dim3(asked.gridDimX, asked.gridDimY, asked.gridDimZ);
  call->block = dim3(asked.blockDimX, asked.blockDimY, asked.blockDimZ);
  call->shared_bytes = asked.sharedMemBytes;
  for (int i = 0; i < kernel->parameters_len; i++) {
    auto* value = static_cast<const char*>(asked.kernelParams[i]);
    call->values.emplace_back(value, value + kernel->parameters[i].bytes);
    if (!kernel->parameters[i].is_pointer) continue;
    char* pointer;
    memcpy(&pointer, value, sizeof pointer);
    // A pointer that is none, or is that of a freed buffer: most often arguments in a wrong order.
    if (pointer && !find_allocation(Space::device, pointer) &&
        !find_allocation(Space::pinned, pointer))
      fail("kernel %s: argument %d of the launch is %p, which is no device memory", kernel->name, i,
           (void*)pointer);
  }
  for (auto& value : call->values) call->pointers.push_back(value.data());
  *made = call;
  return CUDA_SUCCESS;
}

void run_call(const KernelCall& call) {
  if (!survives_kernel()) return;
  // The kernel only reads its arguments, but its interface does not say so.
  auto** pointers = const_cast<void**>(call.pointers.data());
  call.kernel->call(call.kernel->name, pointers, call.grid, call.block, call.shared_bytes);
}

}  // namespace emulate
