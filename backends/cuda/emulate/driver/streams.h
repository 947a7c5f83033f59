// Streams as queues of work that runs only when something waits for it, and events as marks in
// them. Everything here assumes that the driver's lock is held.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "cuda_api.h"

namespace emulate {

struct KernelCall;
struct Capture;

// A range of pinned host memory that a copy reads or writes when it runs, not when it is queued.
struct HostRange {
  char* begin;
  size_t bytes;
  bool written;
};

enum class WorkKind { kernel, copy, fill, host_call, memory, mark, graph };

struct Work {
  WorkKind kind;
  const char* what;
  std::function<void()> run;
  std::vector<HostRange> host;
  std::shared_ptr<KernelCall> kernel;  // of a kernel only
};

struct Queued {
  uint64_t id;
  std::vector<uint64_t> after;  // ids of other streams' work
  Work work;
};

struct Stream {
  bool is_legacy, is_blocking;
  uint64_t last;                // id of the newest work, 0 if there was none
  std::vector<uint64_t> waits;  // what the next work must wait for
  std::deque<Queued> queue;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> capture_tail;  // nodes that the next captured work comes after
};

struct Event {
  unsigned flags;
  uint64_t recorded;  // id of the mark, 0 if never recorded
  double time_ms;     // when the mark was passed
  std::shared_ptr<Capture> capture;
  std::vector<size_t> capture_tail;
};

// Null if the handle was never given out or is destroyed.
Stream* find_stream(CUstream handle);
CUstream create_stream(bool is_blocking);
void destroy_stream(Stream* stream);
const std::vector<Stream*>& all_streams();

// Appends work, to the queue or to the graph that the stream is being captured into.
CUresult submit(Stream* stream, Work work);
// Runs what is needed for this work to be done, and perhaps more.
void force(uint64_t id);
void force_all();
// Runs one piece of work on the way to `id`.
void advance(uint64_t id);
bool is_done(uint64_t id);
size_t pending_work();
// Whether queued work reads or writes these bytes of pinned memory.
bool is_host_range_pending(const char* begin, size_t bytes, bool reads_only);
// Overwrites what a copy will write, so that reading it too early shows.
void poison_destinations(const Work& work);
// A lost device does nothing more.
void drop_all_work();

// Draws for the order of streams; apart from those of kernels, so that neither disturbs the other.
void reset_stream_draws();
uint64_t draw_bits();

}  // namespace emulate
