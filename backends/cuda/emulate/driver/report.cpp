// What tests may ask of the emulator itself; a real driver has none of these.
#include "device.h"
#include "memory.h"
#include "streams.h"

using namespace emulate;

extern "C" {

// Takes effect from the next launch and the next draw between streams on.
void emulate_set_seed(uint64_t value) {
  std::lock_guard<std::recursive_mutex> lock(driver_mutex());
  seed = value;
  launches_since_seed = 0;
  reset_stream_draws();
}

// A negative number forgives a loss that has happened.
void emulate_lose_after(int64_t launches) {
  std::lock_guard<std::recursive_mutex> lock(driver_mutex());
  lose_after(launches);
}

// Writes JSON, cut off at `cap` bytes. Bytes and allocations are those not freed by now.
void emulate_report(char* out, size_t cap) {
  std::lock_guard<std::recursive_mutex> lock(driver_mutex());
  const Statistics& all = statistics;
  snprintf(out, cap,
           "{\"launches\": %llu, \"blocks\": %llu, \"threads\": %llu, \"races\": %llu, "
           "\"leaked_bytes\": %zu, \"leaked_allocations\": %zu, \"accesses\": %llu, "
           "\"pending\": %zu, \"seed\": %llu}",
           (unsigned long long)all.launches, (unsigned long long)all.blocks,
           (unsigned long long)all.threads, (unsigned long long)all.races, memory_in_use(),
           leaked_allocations(), (unsigned long long)all.accesses, pending_work(),
           (unsigned long long)seed);
}

}  // extern "C"
