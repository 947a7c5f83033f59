// Entry points for capture and graphs.
#include <algorithm>
#include <map>
#include <set>

#include "device.h"
#include "graphs.h"
#include "streams.h"

using namespace emulate;

namespace {

// Handles are the addresses of these; both keep their nodes alive by themselves.
std::map<CUgraph, std::shared_ptr<Graph>> graphs;

struct Executable {
  Graph graph;
  std::vector<Node*> origins;  // the nodes of the graph that it was made from
};
std::set<Executable*> executables;

Executable* find_executable(CUgraphExec handle) {
  auto* executable = reinterpret_cast<Executable*>(handle);
  return executables.count(executable) ? executable : nullptr;
}

CUgraphNode handle_of(Node* node) { return reinterpret_cast<CUgraphNode>(node); }

Node* find_node(CUgraphNode handle) {
  for (auto& entry : graphs)
    for (auto& node : entry.second->nodes)
      if (handle_of(node.get()) == handle) return node.get();
  return nullptr;
}

Work kernel_work(const std::shared_ptr<KernelCall>& call) {
  return {WorkKind::kernel, call->kernel->name, [call] { run_call(*call); }, {}, call};
}

}  // namespace

extern "C" {

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  return stream ? begin_capture(stream, mode) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  EMULATE_ENTER();
  *graph = nullptr;
  Stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Graph> captured;
  if (CUresult refused = end_capture(stream, &captured)) return refused;
  *graph = reinterpret_cast<CUgraph>(captured.get());
  graphs[*graph] = captured;
  return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  EMULATE_ENTER();
  Stream* stream = find_stream(handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  *status = !stream->capture              ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                          : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* handle, CUgraph graph_handle,
                                     unsigned long long flags) {
  EMULATE_ENTER();
  auto found = graphs.find(graph_handle);
  if (found == graphs.end()) return CUDA_ERROR_INVALID_HANDLE;
  // Launch from the device can't be had together with anything; nor here at all.
  if (flags & 4) return CUDA_ERROR_INVALID_VALUE;
  auto* executable = new Executable;
  executable->graph = *found->second;
  for (auto& node : found->second->nodes) executable->origins.push_back(node.get());
  executables.insert(executable);
  *handle = reinterpret_cast<CUgraphExec>(executable);
  return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec handle, CUstream stream) {
  EMULATE_ENTER();
  return find_executable(handle) && find_stream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
  EMULATE_ENTER();
  Executable* executable = find_executable(handle);
  Stream* stream = find_stream(stream_handle);
  if (!executable || !stream) return CUDA_ERROR_INVALID_HANDLE;
  // A graph within a graph is beyond this stand-in.
  if (stream->capture) return refuse_in_capture();
  return submit(stream, work_of_graph(executable->graph));
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  EMULATE_ENTER();
  Executable* executable = find_executable(handle);
  if (!executable) return CUDA_ERROR_INVALID_HANDLE;
  executables.erase(executable);
  delete executable;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  EMULATE_ENTER();
  return graphs.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, size_t* len) {
  EMULATE_ENTER();
  auto found = graphs.find(handle);
  if (found == graphs.end()) return CUDA_ERROR_INVALID_HANDLE;
  auto& own = found->second->nodes;
  if (!nodes) {
    *len = own.size();
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *len; i++) nodes[i] = i < own.size() ? handle_of(own[i].get()) : nullptr;
  *len = std::min(*len, own.size());
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  EMULATE_ENTER();
  Node* node = find_node(handle);
  if (!node) return CUDA_ERROR_INVALID_HANDLE;
  switch (node->work.kind) {
    case WorkKind::kernel:
      *type = CU_GRAPH_NODE_TYPE_KERNEL;
      break;
    case WorkKind::copy:
      *type = CU_GRAPH_NODE_TYPE_MEMCPY;
      break;
    case WorkKind::fill:
      *type = CU_GRAPH_NODE_TYPE_MEMSET;
      break;
    default:
      *type = CU_GRAPH_NODE_TYPE_HOST;
  }
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS* parameters) {
  EMULATE_ENTER();
  Node* node = find_node(handle);
  if (!node) return CUDA_ERROR_INVALID_HANDLE;
  if (!node->work.kernel) return CUDA_ERROR_INVALID_VALUE;
  KernelCall& call = *node->work.kernel;
  *parameters = {call.function, call.grid.x,  call.grid.y,       call.grid.z,
                 call.block.x,  call.block.y, call.block.z,      call.shared_bytes,
                 call.pointers.data(), nullptr, nullptr, nullptr};
  return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec handle, CUgraphNode node_handle,
                                           const CUDA_KERNEL_NODE_PARAMS* parameters) {
  EMULATE_ENTER();
  Executable* executable = find_executable(handle);
  if (!executable) return CUDA_ERROR_INVALID_HANDLE;
  auto& origins = executable->origins;
  auto origin = std::find(origins.begin(), origins.end(), reinterpret_cast<Node*>(node_handle));
  if (origin == origins.end()) return CUDA_ERROR_INVALID_VALUE;
  auto& node = executable->graph.nodes[(size_t)(origin - origins.begin())];
  if (!node->work.kernel) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<KernelCall> call;
  if (CUresult refused = make_call(*parameters, &call)) return refused;
  // A new node, since launches that are queued still have the old one.
  node = std::make_shared<Node>(Node{node->after, kernel_work(call)});
  return CUDA_SUCCESS;
}

}  // extern "C"
