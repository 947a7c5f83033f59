// Work captured from streams, and graphs made of it.
#pragma once
#include <thread>

#include "streams.h"

namespace emulate {

struct Node {
  std::vector<size_t> after;  // indices in the graph
  Work work;
};

struct Graph {
  std::vector<std::shared_ptr<Node>> nodes;
};

struct Capture {
  Stream* origin;
  CUstreamCaptureMode mode;
  std::thread::id thread;
  bool is_invalid;
  std::shared_ptr<Graph> graph;
};

CUresult append_to_capture(Stream* stream, Work work);
// Whether a capture is under way at all, or one that a call of this thread would disturb.
bool is_anything_captured(bool by_any_thread);
void invalidate_captures();
// 900, and the capture is spoilt, if one forbids calls that wait or allocate; else success.
CUresult refuse_in_capture();

CUresult begin_capture(Stream* stream, CUstreamCaptureMode mode);
CUresult end_capture(Stream* stream, std::shared_ptr<Graph>* graph);
CUresult record_in_capture(Stream* stream, Event* event);
// Draws another stream into the capture that the event was recorded in.
CUresult wait_in_capture(Stream* stream, Event* event);

// Runs a graph as one piece of work: its nodes in an order that the seed draws.
Work work_of_graph(const Graph& graph);

}  // namespace emulate
