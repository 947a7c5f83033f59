// The order in which queued work runs. Only events and the order within a stream bind it: seed 0
// runs as little as possible as late as possible, seed 1 everything at once, and all others toss
// coins, at each enqueue and at each wait. What happens to work in the wrong order is then seen in
// its results.
#include "streams.h"

#include <string.h>

#include <algorithm>
#include <set>

#include "../runtime/runtime.h"
#include "device.h"
#include "graphs.h"

namespace emulate {

namespace {

std::vector<Stream*> streams;
std::set<uint64_t> pending;
uint64_t newest = 0;
uint64_t draw_state = 1;

Stream* legacy_stream() {
  static Stream* stream = new Stream{true, true, 0, {}, {}, nullptr, {}};
  return stream;
}
Stream* per_thread_stream() {
  static Stream* stream = new Stream{false, true, 0, {}, {}, nullptr, {}};
  return stream;
}

bool is_ready(const Stream* stream) {
  if (stream->queue.empty()) return false;
  for (uint64_t id : stream->queue.front().after)
    if (!is_done(id)) return false;
  return true;
}

void run_front(Stream* stream) {
  Queued queued = std::move(stream->queue.front());
  stream->queue.pop_front();
  // Done before it has run: a host function may ask.
  pending.erase(queued.id);
  if (!is_lost()) queued.work.run();
}

Stream* stream_of(uint64_t id) {
  for (Stream* stream : streams)
    if (!stream->queue.empty() && stream->queue.front().id <= id && id <= stream->last)
      for (const Queued& queued : stream->queue)
        if (queued.id == id) return stream;
  return nullptr;
}

// The stream whose front must run before `id` can.
Stream* first_needed(uint64_t id) {
  Stream* stream = stream_of(id);
  while (stream && !is_ready(stream)) {
    Stream* before = nullptr;
    for (uint64_t wait : stream->queue.front().after)
      if (!is_done(wait)) before = stream_of(wait);
    stream = before;
  }
  if (!stream) fail("streams wait for each other: this is a fault of the emulator");
  return stream;
}

Stream* any_ready() {
  std::vector<Stream*> ready;
  for (Stream* stream : streams)
    if (is_ready(stream)) ready.push_back(stream);
  return ready.empty() ? nullptr : ready[draw_bits() % ready.size()];
}

// The legacy stream waits for all blocking streams, and they for it.
void add_implicit_waits(Stream* stream, std::vector<uint64_t>& after) {
  if (!stream->is_blocking) return;
  for (Stream* other : streams)
    if (other != stream && other->is_blocking && (stream->is_legacy || other->is_legacy))
      after.push_back(other->last);
}

void perhaps_run_some() {
  if (seed == 0) return;
  if (seed == 1) {
    force_all();
    return;
  }
  if (draw_bits() % 4) return;
  for (uint64_t left = 1 + draw_bits() % 4; left; left--) {
    Stream* stream = any_ready();
    if (!stream) return;
    run_front(stream);
  }
}

}  // namespace

uint64_t draw_bits() {
  draw_state ^= draw_state << 13;
  draw_state ^= draw_state >> 7;
  draw_state ^= draw_state << 17;
  return draw_state >> 16;
}

void reset_stream_draws() {
  draw_state = seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
  for (int i = 0; i < 4; i++) draw_bits();
}

const std::vector<Stream*>& all_streams() {
  if (streams.empty()) streams = {legacy_stream(), per_thread_stream()};
  return streams;
}

Stream* find_stream(CUstream handle) {
  all_streams();
  auto number = (uintptr_t)handle;
  if (number == 0 || number == 1) return legacy_stream();
  if (number == 2) return per_thread_stream();
  auto* stream = reinterpret_cast<Stream*>(handle);
  return std::find(streams.begin(), streams.end(), stream) == streams.end() ? nullptr : stream;
}

CUstream create_stream(bool is_blocking) {
  all_streams();
  streams.push_back(new Stream{false, is_blocking, 0, {}, {}, nullptr, {}});
  return reinterpret_cast<CUstream>(streams.back());
}

void destroy_stream(Stream* stream) {
  // The device goes on with the work of a destroyed stream; nobody can tell when.
  if (stream->last) force(stream->last);
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  delete stream;
}

CUresult submit(Stream* stream, Work work) {
  if (stream->capture) return append_to_capture(stream, std::move(work));
  if (stream->is_legacy && is_anything_captured(true)) {
    invalidate_captures();
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  poison_destinations(work);
  Queued queued{++newest, std::move(stream->waits), std::move(work)};
  stream->waits.clear();
  add_implicit_waits(stream, queued.after);
  stream->last = newest;
  pending.insert(newest);
  stream->queue.push_back(std::move(queued));
  perhaps_run_some();
  return is_lost() ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

bool is_done(uint64_t id) { return !pending.count(id); }
size_t pending_work() { return pending.size(); }

void advance(uint64_t id) {
  Stream* other = seed > 1 && draw_bits() % 2 ? any_ready() : nullptr;
  run_front(other ? other : first_needed(id));
}

void force(uint64_t id) {
  while (!is_done(id)) advance(id);
}

void force_all() {
  while (!pending.empty()) advance(*pending.begin());
}

bool is_host_range_pending(const char* begin, size_t bytes, bool reads_only) {
  for (const Stream* stream : streams)
    for (const Queued& queued : stream->queue)
      for (const HostRange& range : queued.work.host)
        if (!(reads_only && range.written) && range.begin < begin + bytes &&
            begin < range.begin + range.bytes)
          return true;
  return false;
}

void poison_destinations(const Work& work) {
  for (const HostRange& range : work.host)
    // Bytes that earlier work is still to read must stay as they are.
    if (range.written && !is_host_range_pending(range.begin, range.bytes, true))
      memset(range.begin, 0xfd, range.bytes);
}

void drop_all_work() {
  for (Stream* stream : streams) stream->queue.clear();
  pending.clear();
}

}  // namespace emulate
