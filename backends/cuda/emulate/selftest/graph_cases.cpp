// Cases about graphs: what is captured, what a replay does, and what is illegal meanwhile.
#include "host.h"

namespace {

constexpr int kLen = 64;

CUstream new_stream() {
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return stream;
}

CUresult add(CUstream stream, CUdeviceptr out, CUdeviceptr in, int amount) {
  return try_launch(stream, "add_to", 1, kLen, 0, out, in, kLen, amount);
}

CUgraphExec instantiate(CUstream stream, CUgraph* graph) {
  CUgraphExec executable;
  OK(cuStreamEndCapture(stream, graph));
  OK(cuGraphInstantiateWithFlags(&executable, *graph, 0));
  return executable;
}

void begin(CUstream stream) {
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

// in (pinned) -> device -> +1 -> +10 -> out (pinned); replayed with new inputs each time.
void replay(const Words&) {
  for (uint64_t seed = 0; seed < 10; seed++) {
    emulate_set_seed(seed);
    Buffer<int> a(kLen), b(kLen);
    int *in, *out;
    OK(cuMemHostAlloc((void**)&in, kLen * 4, 0));
    OK(cuMemHostAlloc((void**)&out, kLen * 4, 0));
    for (int i = 0; i < kLen; i++) out[i] = 4321;
    CUstream stream = new_stream();
    begin(stream);
    OK(cuMemcpyHtoDAsync_v2(a.pointer, in, kLen * 4, stream));
    int amount = 1;
    OK(add(stream, b.pointer, a.pointer, amount));
    amount = 999;  // the value was copied when it was captured
    OK(add(stream, a.pointer, b.pointer, 10));
    OK(cuMemcpyDtoHAsync_v2(out, a.pointer, kLen * 4, stream));
    CUgraph graph;
    CUgraphExec executable = instantiate(stream, &graph);
    OK(cuGraphDestroy(graph));  // the executable lives on without it
    HOLDS(out[0] == 4321);      // nothing has run
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < kLen; i++) in[i] = i * 100 + round;
      OK(cuGraphLaunch(executable, stream));
      OK(cuStreamSynchronize(stream));
      for (int i = 0; i < kLen; i++) HOLDS(out[i] == i * 100 + round + 11);
    }
    OK(cuGraphExecDestroy(executable));
    OK(cuStreamDestroy_v2(stream));
    OK(cuMemFreeHost(in));
    OK(cuMemFreeHost(out));
  }
}

// A second stream joins and comes back; `forgets` leaves one of the two events out.
void fork(const Words& words) {
  bool no_join = !words.empty() && words[0] == "no_join";
  bool no_order = !words.empty() && words[0] == "no_order";
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; seed++) {
    emulate_set_seed(seed);
    Buffer<int> a(numbers(kLen)), b(kLen), c(kLen), d(kLen);
    CUstream main = new_stream(), side = new_stream();
    CUevent forked, joined;
    OK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    begin(main);
    if (no_order) OK(cuEventRecord(forked, main));
    OK(add(main, b.pointer, a.pointer, 1));
    if (!no_order) OK(cuEventRecord(forked, main));
    OK(cuStreamWaitEvent(side, forked, 0));
    OK(add(side, c.pointer, b.pointer, 10));
    OK(cuEventRecord(joined, side));
    if (!no_join) OK(cuStreamWaitEvent(main, joined, 0));
    OK(add(main, d.pointer, c.pointer, 100));
    CUgraph graph;
    if (no_join) {
      REFUSED(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(main, &graph));
      return;
    }
    CUgraphExec executable = instantiate(main, &graph);
    REFUSED(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(joined));
    OK(cuGraphLaunch(executable, main));
    auto got = d.get();
    for (int i = 0; i < kLen; i++) wrong += got[i] != numbers(kLen)[i] + 111;
    OK(cuGraphExecDestroy(executable));
    OK(cuGraphDestroy(graph));
  }
  HOLDS(no_order ? wrong > 0 : wrong == 0);
}

void change_parameters(const Words&) {
  Buffer<int> a(numbers(kLen)), b(kLen), c(kLen);
  CUstream stream = new_stream();
  begin(stream);
  OK(add(stream, b.pointer, a.pointer, 1));
  OK(cuMemcpyDtoDAsync_v2(c.pointer, b.pointer, kLen * 4, stream));
  CUgraph graph;
  CUgraphExec executable = instantiate(stream, &graph);
  CUgraphNode nodes[2];
  size_t len = 0;
  OK(cuGraphGetNodes(graph, nullptr, &len));
  HOLDS(len == 2);
  OK(cuGraphGetNodes(graph, nodes, &len));
  CUgraphNodeType type;
  OK(cuGraphNodeGetType(nodes[1], &type));
  HOLDS(type == CU_GRAPH_NODE_TYPE_MEMCPY);
  CUDA_KERNEL_NODE_PARAMS parameters;
  OK(cuGraphKernelNodeGetParams_v2(nodes[0], &parameters));
  HOLDS(parameters.blockDimX == kLen && *(int*)parameters.kernelParams[3] == 1);
  OK(cuGraphLaunch(executable, stream));
  int amount = 50;
  void* values[] = {&b.pointer, &a.pointer, parameters.kernelParams[2], &amount};
  parameters.kernelParams = values;
  OK(cuGraphExecKernelNodeSetParams_v2(executable, nodes[0], &parameters));
  HOLDS(c.get()[5] == numbers(kLen)[5] + 1);  // what was launched before is as it was
  OK(cuGraphLaunch(executable, stream));
  HOLDS(c.get()[5] == numbers(kLen)[5] + 50);
}

void illegal(const Words&) {
  Buffer<int> a(numbers(kLen)), b(kLen);
  CUstream stream = new_stream(), other = new_stream();
  CUevent before;
  CUgraph graph;
  CUdeviceptr pointer;
  std::vector<int> host(kLen);
  OK(cuEventCreate(&before, CU_EVENT_DISABLE_TIMING));
  OK(cuEventRecord(before, other));
  const CUresult unsupported = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const CUresult invalidated = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

  begin(stream);
  REFUSED(unsupported, cuStreamSynchronize(stream));
  CUstreamCaptureStatus status;
  OK(cuStreamIsCapturing(stream, &status));
  HOLDS(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  REFUSED(invalidated, add(stream, b.pointer, a.pointer, 1));
  REFUSED(invalidated, cuStreamEndCapture(stream, &graph));
  OK(cuStreamIsCapturing(stream, &status));
  HOLDS(status == CU_STREAM_CAPTURE_STATUS_NONE);

  auto spoils = [&](CUresult wanted, auto call) {
    begin(stream);
    REFUSED(wanted, call());
    REFUSED(invalidated, cuStreamEndCapture(stream, &graph));
  };
  spoils(unsupported, [&] { return cuCtxSynchronize(); });
  spoils(unsupported, [&] { return cuMemAlloc_v2(&pointer, 64); });
  spoils(unsupported, [&] { return cuMemFree_v2(a.pointer); });
  spoils(unsupported, [&] { return cuMemAllocAsync(&pointer, 64, stream); });
  spoils(unsupported, [&] { return cuMemcpyDtoH_v2(host.data(), a.pointer, 64); });
  spoils(unsupported, [&] { return cuMemcpyHtoDAsync_v2(a.pointer, host.data(), 64, stream); });
  spoils(unsupported, [&] { return cuMemcpyDtoHAsync_v2(host.data(), a.pointer, 64, stream); });
  spoils(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, [&] { return cuStreamWaitEvent(stream, before, 0); });
  spoils(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, [&] { return add(nullptr, b.pointer, a.pointer, 1); });
  REFUSED(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
          cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL));
  // And the stream is as good as new.
  OK(add(stream, b.pointer, a.pointer, 1));
  HOLDS(b.get()[3] == numbers(kLen)[3] + 1);
}

// A graph that is replayed after a buffer of its is gone.
void freed_buffer(const Words&) {
  Buffer<int> a(numbers(kLen));
  CUdeviceptr gone;
  OK(cuMemAlloc_v2(&gone, kLen * 4));
  CUstream stream = new_stream();
  begin(stream);
  OK(add(stream, gone, a.pointer, 1));
  CUgraph graph;
  CUgraphExec executable = instantiate(stream, &graph);
  OK(cuMemFree_v2(gone));
  OK(cuGraphLaunch(executable, stream));
  OK(cuStreamSynchronize(stream));
  printf("not refused\n");
}

}  // namespace

const std::vector<Named> graph_cases = {
    {"replay", replay},
    {"fork", fork},
    {"change_parameters", change_parameters},
    {"illegal", illegal},
    {"freed_buffer", freed_buffer},
};
