// Which kernels there are, and from which sources they were compiled.
#include <map>
#include <set>

#include "runtime.h"

namespace emulate {

namespace {

// Functions, because kernels register before the variables of this file are constructed.
std::map<std::pair<std::string, uint64_t>, Kernel>& kernels() {
  static std::map<std::pair<std::string, uint64_t>, Kernel> all;
  return all;
}
std::map<std::pair<std::string, uint64_t>, int>& bounds() {
  static std::map<std::pair<std::string, uint64_t>, int> all;
  return all;
}
std::set<uint64_t>& sources() {
  static std::set<uint64_t> all;
  return all;
}

}  // namespace

void register_kernel(const Kernel& kernel) {
  kernels()[{kernel.name, kernel.source_hash}] = kernel;
}
void register_source(uint64_t source_hash, const char*) { sources().insert(source_hash); }
void register_bounds(const char* name, uint64_t source_hash, int threads) {
  bounds()[{name, source_hash}] = threads;
}
int threads_max(const Kernel& kernel) {
  auto found = bounds().find({kernel.name, kernel.source_hash});
  return found == bounds().end() ? kThreadsMax : found->second;
}
bool is_known_source(uint64_t source_hash) { return sources().count(source_hash) != 0; }
size_t sources_len() { return sources().size(); }

const Kernel* find_kernel(const char* name, uint64_t source_hash, bool any_source) {
  auto exact = kernels().find({name, source_hash});
  if (exact != kernels().end()) return &exact->second;
  if (!any_source) return nullptr;
  auto first = kernels().lower_bound({name, 0});
  return first != kernels().end() && first->first.first == name ? &first->second : nullptr;
}

// Only the race checker has anything to note.
__attribute__((weak)) void touch_atomic(const void*, unsigned, void*) {}

}  // namespace emulate
