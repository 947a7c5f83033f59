// Capture and replay. What a captured stream is asked to do is noted and not done; work of several
// streams, joined by events, becomes one graph. The rules that make a capture illegal are those of
// the driver; a replay runs nodes in any order that their edges allow.
#include "graphs.h"

#include <algorithm>

#include "../runtime/runtime.h"
#include "device.h"
#include "memory.h"

namespace emulate {

namespace {

std::vector<std::shared_ptr<Capture>> captures;

void end(const std::shared_ptr<Capture>& capture) {
  for (Stream* stream : all_streams()) {
    if (stream->capture != capture) continue;
    stream->capture = nullptr;
    stream->capture_tail.clear();
  }
  captures.erase(std::find(captures.begin(), captures.end(), capture));
}

// Whether all that other streams added comes before the origin's tail.
bool is_joined(const Capture& capture) {
  std::vector<bool> reached(capture.graph->nodes.size(), false);
  std::vector<size_t> left = capture.origin->capture_tail;
  while (!left.empty()) {
    size_t node = left.back();
    left.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    for (size_t before : capture.graph->nodes[node]->after) left.push_back(before);
  }
  return std::find(reached.begin(), reached.end(), false) == reached.end();
}

// Copies from memory that is not pinned would read it at each replay, when it may be gone.
bool is_capturable(const Work& work) {
  if (work.kind == WorkKind::memory) return false;
  if (work.kind != WorkKind::copy) return true;
  return std::all_of(work.host.begin(), work.host.end(), [](const HostRange& range) {
    return is_live(Space::pinned, range.begin, range.bytes);
  });
}

}  // namespace

CUresult append_to_capture(Stream* stream, Work work) {
  Capture& capture = *stream->capture;
  if (capture.is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!is_capturable(work)) {
    fprintf(stderr, "EMULATE: %s can't be captured into a graph\n", work.what);
    capture.is_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  auto node = std::make_shared<Node>(Node{stream->capture_tail, std::move(work)});
  stream->capture_tail = {capture.graph->nodes.size()};
  capture.graph->nodes.push_back(node);
  return CUDA_SUCCESS;
}

bool is_anything_captured(bool by_any_thread) {
  for (const auto& capture : captures) {
    if (by_any_thread) return true;
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL) return true;
    bool own = capture->thread == std::this_thread::get_id();
    if (capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && own) return true;
  }
  return false;
}

void invalidate_captures() {
  for (const auto& capture : captures) capture->is_invalid = true;
}

CUresult refuse_in_capture() {
  if (!is_anything_captured(false)) return CUDA_SUCCESS;
  invalidate_captures();
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult begin_capture(Stream* stream, CUstreamCaptureMode mode) {
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_INVALID_VALUE;
  auto capture = std::make_shared<Capture>(
      Capture{stream, mode, std::this_thread::get_id(), false, std::make_shared<Graph>()});
  captures.push_back(capture);
  stream->capture = capture;
  stream->capture_tail.clear();
  return CUDA_SUCCESS;
}

CUresult end_capture(Stream* stream, std::shared_ptr<Graph>* graph) {
  std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return CUDA_ERROR_INVALID_VALUE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  bool wrong_thread = capture->thread != std::this_thread::get_id();
  if (wrong_thread && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  bool joined = is_joined(*capture);
  end(capture);
  if (capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!joined) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = capture->graph;
  return CUDA_SUCCESS;
}

CUresult record_in_capture(Stream* stream, Event* event) {
  if (stream->capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->capture = stream->capture;
  event->capture_tail = stream->capture_tail;
  return CUDA_SUCCESS;
}

CUresult wait_in_capture(Stream* stream, Event* event) {
  // The capture that the event was recorded in may be over.
  bool is_open = std::find(captures.begin(), captures.end(), event->capture) != captures.end();
  if (!stream->capture && !is_open) return CUDA_ERROR_CAPTURED_EVENT;
  if (stream->capture && stream->capture->is_invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture && stream->capture != event->capture) {
    stream->capture->is_invalid = true;
    return is_open ? CUDA_ERROR_STREAM_CAPTURE_MERGE : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  stream->capture = event->capture;
  for (size_t node : event->capture_tail) stream->capture_tail.push_back(node);
  return CUDA_SUCCESS;
}

Work work_of_graph(const Graph& graph) {
  Work all{WorkKind::graph, "cuGraphLaunch", nullptr, {}, nullptr};
  for (const auto& node : graph.nodes)
    for (const HostRange& range : node->work.host) all.host.push_back(range);
  // The nodes as they are now: what is changed in the graph later is for later launches.
  std::vector<std::shared_ptr<Node>> nodes = graph.nodes;
  all.run = [nodes] {
    std::vector<bool> done(nodes.size(), false);
    for (size_t left = nodes.size(); left && !is_lost(); left--) {
      std::vector<size_t> ready;
      for (size_t i = 0; i < nodes.size(); i++) {
        const auto& after = nodes[i]->after;
        bool waits = std::any_of(after.begin(), after.end(), [&](size_t k) { return !done[k]; });
        if (!done[i] && !waits) ready.push_back(i);
      }
      size_t pick = seed == 0 ? 0 : seed == 1 ? ready.size() - 1 : draw_bits() % ready.size();
      nodes[ready[pick]]->work.run();
      done[ready[pick]] = true;
    }
  };
  return all;
}

}  // namespace emulate
