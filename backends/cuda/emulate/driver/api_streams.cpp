// Entry points for streams, events and host functions.
#include <algorithm>
#include <chrono>
#include <set>

#include "device.h"
#include "graphs.h"
#include "streams.h"

using namespace emulate;

namespace {

std::set<Event*> events;

Event* find_event(CUevent handle) {
  auto* event = reinterpret_cast<Event*>(handle);
  return events.count(event) ? event : nullptr;
}

double now_ms() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(since).count();
}

// Waiting for a stream that is captured would wait for work that was only noted.
CUresult refuse_captured(Stream* stream) {
  if (!stream->capture) return refuse_in_capture();
  stream->capture->is_invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult refuse_captured(const Event* event) {
  return event->capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_SUCCESS;
}

// A program that only asks, again and again, must see the work done at some time: so each question
// gets one piece of it done.
CUresult query(uint64_t id) {
  if (is_done(id)) return CUDA_SUCCESS;
  advance(id);
  if (is_lost()) return CUDA_ERROR_ILLEGAL_ADDRESS;
  return is_done(id) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

}  // namespace

extern "C" {

CUresult cuStreamCreate(CUstream* handle, unsigned flags) {
  EMULATE_ENTER();
  if (CUresult refused = refuse_in_capture()) return refused;
  *handle = create_stream(!(flags & CU_STREAM_NON_BLOCKING));
  return CUDA_SUCCESS;
}
CUresult cuStreamCreateWithPriority(CUstream* handle, unsigned flags, int) {
  return cuStreamCreate(handle, flags);
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  if (!stream || (uintptr_t)handle <= 2) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return refuse_captured(stream);
  destroy_stream(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult refused = refuse_captured(stream)) return refused;
  force(stream->last);
  return refuse_call();
}

CUresult cuStreamQuery(CUstream handle) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult refused = refuse_captured(stream)) return refused;
  return query(stream->last);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  Event* event = find_event(event_handle);
  if (!stream || !event) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture || event->capture) return wait_in_capture(stream, event);
  // An event that was never recorded holds nobody up.
  if (event->recorded) stream->waits.push_back(event->recorded);
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user_data) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  auto run = [=] { function(user_data); };
  return submit(stream, {WorkKind::host_call, "cuLaunchHostFunc", run, {}, nullptr});
}

CUresult cuEventCreate(CUevent* handle, unsigned flags) {
  EMULATE_ENTER();
  auto* event = new Event{flags, 0, 0, nullptr, {}};
  events.insert(event);
  *handle = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  EMULATE_ENTER();
  Event* event = find_event(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  events.erase(event);
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  EMULATE_ENTER();
  Stream* stream = find_stream(stream_handle);
  Event* event = find_event(handle);
  if (!stream || !event) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return record_in_capture(stream, event);
  event->capture = nullptr;
  event->capture_tail.clear();
  auto run = [event] {
    if (events.count(event)) event->time_ms = now_ms();
  };
  CUresult result = submit(stream, {WorkKind::mark, "cuEventRecord", run, {}, nullptr});
  event->recorded = stream->last;
  return result;
}

CUresult cuEventSynchronize(CUevent handle) {
  EMULATE_ENTER();
  Event* event = find_event(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult refused = refuse_captured(event)) return refused;
  if (CUresult refused = refuse_in_capture()) return refused;
  force(event->recorded);
  return refuse_call();
}

CUresult cuEventQuery(CUevent handle) {
  EMULATE_ENTER();
  Event* event = find_event(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult refused = refuse_captured(event)) return refused;
  if (CUresult refused = refuse_in_capture()) return refused;
  return query(event->recorded);
}

CUresult cuEventElapsedTime_v2(float* ms, CUevent start_handle, CUevent end_handle) {
  EMULATE_ENTER();
  Event *start = find_event(start_handle), *end = find_event(end_handle);
  if (!start || !end || (start->flags | end->flags) & CU_EVENT_DISABLE_TIMING)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  if (!is_done(start->recorded) || !is_done(end->recorded)) return CUDA_ERROR_NOT_READY;
  *ms = (float)std::max(end->time_ms - start->time_ms, 0.0005);
  return CUDA_SUCCESS;
}
CUresult cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(ms, start, end);
}

}  // extern "C"
