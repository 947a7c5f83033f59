// Entry points for memory: allocation, copies and fills. Every range is looked up when it is named;
// a copy from or to pinned memory touches it when it runs, as the device does.
#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "graphs.h"
#include "memory.h"
#include "streams.h"

using namespace emulate;

namespace {

char* bytes_at(CUdeviceptr pointer) { return reinterpret_cast<char*>(pointer); }

// Whether the whole range is live device (or pinned, which the device can address) memory.
bool is_named_well(const char* call, CUdeviceptr pointer, size_t bytes) {
  if (!bytes) return true;
  for (Space space : {Space::device, Space::pinned}) {
    Allocation* found = find_allocation(space, bytes_at(pointer));
    if (found && !found->free_queued && is_live(space, bytes_at(pointer), bytes)) return true;
  }
  fprintf(stderr, "EMULATE: %s: %zu bytes at 0x%llx are not inside a live allocation\n", call,
          bytes, pointer);
  return false;
}

bool is_pinned(const void* host, size_t bytes) { return is_live(Space::pinned, host, bytes); }

CUresult copy_in(Stream* stream, CUdeviceptr to, const void* from, size_t bytes) {
  if (!is_named_well("cuMemcpyHtoD", to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!bytes) return CUDA_SUCCESS;
  char* target = bytes_at(to);
  auto* source = static_cast<const char*>(from);
  Work work{WorkKind::copy, "cuMemcpyHtoD from pinned memory", nullptr, {}, nullptr};
  if (is_pinned(from, bytes)) {
    work.host = {{const_cast<char*>(source), bytes, false}};
    work.run = [=] { memcpy(target, source, bytes); };
  } else if (stream->capture) {
    // Named so that the capture refuses it.
    work.what = "cuMemcpyHtoD from pageable memory";
    work.host = {{const_cast<char*>(source), bytes, false}};
    work.run = [] {};
  } else {
    // Staged at once, as the driver does with memory that may be gone when the copy runs.
    auto staged = std::make_shared<std::vector<char>>(source, source + bytes);
    work.run = [=] { memcpy(target, staged->data(), bytes); };
  }
  return submit(stream, std::move(work));
}

CUresult copy_out(Stream* stream, void* to, CUdeviceptr from, size_t bytes) {
  if (!is_named_well("cuMemcpyDtoH", from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!bytes) return CUDA_SUCCESS;
  const char* source = bytes_at(from);
  auto* target = static_cast<char*>(to);
  bool pinned = is_pinned(to, bytes);
  Work work{WorkKind::copy, "cuMemcpyDtoH", nullptr, {}, nullptr};
  if (pinned || stream->capture) work.host = {{target, bytes, true}};
  work.run = [=] { memcpy(target, source, bytes); };
  if (!pinned && stream->capture) work.what = "cuMemcpyDtoH to pageable memory";
  CUresult result = submit(stream, std::move(work));
  // To pageable memory the driver returns when the copy is done.
  if (result || pinned) return result;
  force(stream->last);
  return refuse_call();
}

CUresult copy_within(Stream* stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (!is_named_well("cuMemcpyDtoD (to)", to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_named_well("cuMemcpyDtoD (from)", from, bytes)) return CUDA_ERROR_INVALID_VALUE;
  char *target = bytes_at(to), *source = bytes_at(from);
  if (target < source + bytes && source < target + bytes && bytes) {
    fprintf(stderr, "EMULATE: cuMemcpyDtoD: the two ranges overlap\n");
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto run = [=] { memcpy(target, source, bytes); };
  return submit(stream, {WorkKind::copy, "cuMemcpyDtoD", run, {}, nullptr});
}

template <class T>
CUresult fill(CUstream handle, CUdeviceptr to, T value, size_t len) {
  Stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (to % sizeof(T)) return CUDA_ERROR_INVALID_VALUE;
  if (!is_named_well("cuMemset", to, len * sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
  char* target = bytes_at(to);
  auto run = [=] {
    for (size_t i = 0; i < len; i++) memcpy(target + i * sizeof(T), &value, sizeof(T));
  };
  return submit(stream, {WorkKind::fill, "cuMemset", run, {}, nullptr});
}

CUresult refuse_free(CUdeviceptr pointer) {
  fprintf(stderr, "EMULATE: free of 0x%llx, which is no live allocation\n", pointer);
  return CUDA_ERROR_INVALID_VALUE;
}
CUresult free_now(CUdeviceptr pointer) {
  return release(Space::device, bytes_at(pointer)) ? CUDA_SUCCESS : refuse_free(pointer);
}

}  // namespace

extern "C" {

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  EMULATE_ENTER();
  *total_bytes = memory_capacity();
  *free_bytes = memory_capacity() - memory_in_use();
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  EMULATE_ENTER();
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult refused = refuse_in_capture()) return refused;
  char* fresh = allocate(Space::device, bytes);
  if (!fresh) return CUDA_ERROR_OUT_OF_MEMORY;
  fill_with_nan(fresh, bytes);
  *pointer = reinterpret_cast<CUdeviceptr>(fresh);
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  EMULATE_ENTER();
  if (!pointer) return CUDA_SUCCESS;
  if (CUresult refused = refuse_in_capture()) return refused;
  // The driver waits for all work that may still use the memory.
  force_all();
  if (CUresult refused = refuse_call()) return refused;
  return free_now(pointer);
}

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream handle) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  *pointer = 0;
  if (!bytes) return CUDA_SUCCESS;
  if (stream->capture) return submit(stream, {WorkKind::memory, "cuMemAllocAsync", [] {}, {}, {}});
  char* fresh = allocate(Space::device, bytes);
  if (!fresh) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = reinterpret_cast<CUdeviceptr>(fresh);
  // In the stream's order: a write of another stream that does not wait for it is lost.
  auto run = [=] {
    if (is_live(Space::device, fresh, bytes)) fill_with_nan(fresh, bytes);
  };
  return submit(stream, {WorkKind::memory, "cuMemAllocAsync", run, {}, nullptr});
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!pointer) return CUDA_SUCCESS;
  Allocation* found = find_allocation(Space::device, bytes_at(pointer));
  if (!found || found->base != bytes_at(pointer) || found->free_queued)
    return refuse_free(pointer);
  if (!stream->capture) found->free_queued = true;
  auto run = [=] { free_now(pointer); };
  return submit(stream, {WorkKind::memory, "cuMemFreeAsync", run, {}, nullptr});
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  EMULATE_ENTER();
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (CUresult refused = refuse_in_capture()) return refused;
  char* fresh = allocate(Space::pinned, bytes);
  if (!fresh) return CUDA_ERROR_OUT_OF_MEMORY;
  fill_with_nan(fresh, bytes);
  *pointer = fresh;
  return CUDA_SUCCESS;
}
CUresult cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return cuMemHostAlloc(pointer, bytes, 0);
}

CUresult cuMemFreeHost(void* pointer) {
  EMULATE_ENTER();
  if (CUresult refused = refuse_in_capture()) return refused;
  Allocation* found = find_allocation(Space::pinned, pointer);
  if (!found || found->base != pointer) {
    fprintf(stderr, "EMULATE: cuMemFreeHost of %p, which is no pinned allocation\n", pointer);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (is_host_range_pending(found->base, found->bytes, false))
    fail("cuMemFreeHost of %p while a copy of it is still queued", pointer);
  release(Space::pinned, pointer);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream handle) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  return stream ? copy_in(stream, to, from, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream handle) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  return stream ? copy_out(stream, to, from, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  return stream ? copy_within(stream, to, from, bytes) : CUDA_ERROR_INVALID_HANDLE;
}

// Without a stream: the legacy stream, which streams made as non-blocking do not wait for. From
// pageable memory the driver promises only that the source has been read.
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  EMULATE_ENTER();
  if (CUresult refused = refuse_in_capture()) return refused;
  Stream* stream = find_stream(nullptr);
  CUresult result = copy_in(stream, to, from, bytes);
  if (result || !is_pinned(from, bytes)) return result;
  force(stream->last);
  return refuse_call();
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  EMULATE_ENTER();
  if (CUresult refused = refuse_in_capture()) return refused;
  Stream* stream = find_stream(nullptr);
  CUresult result = copy_out(stream, to, from, bytes);
  if (result) return result;
  force(stream->last);
  return refuse_call();
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  EMULATE_ENTER();
  if (CUresult refused = refuse_in_capture()) return refused;
  return copy_within(find_stream(nullptr), to, from, bytes);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t len, CUstream handle) {
  EMULATE_ENTER();
  return fill(handle, to, value, len);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t len, CUstream handle) {
  EMULATE_ENTER();
  return fill(handle, to, value, len);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t len, CUstream handle) {
  EMULATE_ENTER();
  return fill(handle, to, value, len);
}
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t len) {
  EMULATE_ENTER();
  if (CUresult refused = refuse_in_capture()) return refused;
  return fill(nullptr, to, value, len);
}
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t len) {
  EMULATE_ENTER();
  if (CUresult refused = refuse_in_capture()) return refused;
  return fill(nullptr, to, value, len);
}

}  // extern "C"
