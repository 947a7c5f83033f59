// How a kernel file makes its kernels known: one line `KERNEL_EXPORT(name);` each. The driver finds
// them by name and by the hash of the source that they were compiled from.
#pragma once
#include "language.h"

namespace emulate {

typedef void (*Entry)(void* context);

// One launch: a grid of blocks, and how to call the kernel with its arguments.
struct Launch {
  const char* name;
  dim3 grid, block;
  size_t shared_bytes;
  Entry entry;
  void* context;
  size_t context_bytes;
};
void run_grid(const Launch& launch);

struct Parameter {
  size_t bytes;
  bool is_pointer;
};

struct Kernel {
  const char* name;
  uint64_t source_hash;
  void (*call)(const char* name, void** parameters, dim3 grid, dim3 block, size_t shared_bytes);
  const Parameter* parameters;
  int parameters_len;
};
void register_kernel(const Kernel& kernel);
void register_bounds(const char* name, uint64_t source_hash, int threads);
void register_source(uint64_t source_hash, const char* file);
void register_shared(char* begin, char* end);

template <auto kernel, class F>
struct Caller;

template <auto kernel, class... P>
struct Caller<kernel, void (*)(P...)> {
  typedef std::tuple<P...> Arguments;

  static void enter(void* context) { std::apply(kernel, *static_cast<Arguments*>(context)); }

  template <size_t... I>
  static void call_with(const char* name, void** parameters, dim3 grid, dim3 block, size_t shared,
                        std::index_sequence<I...>) {
    Arguments arguments(*static_cast<P*>(parameters[I])...);
    run_grid({name, grid, block, shared, &enter, &arguments, sizeof arguments});
  }

  static void call(const char* name, void** parameters, dim3 grid, dim3 block, size_t shared) {
    call_with(name, parameters, grid, block, shared, std::index_sequence_for<P...>{});
  }

  static void add(const char* name, uint64_t source_hash) {
    // One more than needed, since an array can't be empty.
    static const Parameter parameters[] = {{sizeof(P), std::is_pointer<P>::value}..., {0, false}};
    register_kernel({name, source_hash, &call, parameters, (int)sizeof...(P)});
  }
};

}  // namespace emulate

// Given by build.sh; a kernel file compiled by hand has none.
#ifndef EMULATE_SOURCE_HASH
#define EMULATE_SOURCE_HASH 0
#endif

// What __launch_bounds__ promised: the device refuses to launch more threads.
#define EMULATE_LAUNCH_BOUNDS(name, threads)                                               \
  __attribute__((constructor)) static void emulate_bounds_##name() {                       \
    ::emulate::register_bounds(#name, EMULATE_SOURCE_HASH, (threads));                     \
  }                                                                                        \
  static_assert((threads) > 0 && (threads) <= 1024, "a block has up to 1024 threads")

// The one architecture that the device's compiler is given a file for.
#define KERNEL_ONLY(architecture) static_assert(true, "")

#define KERNEL_EXPORT(name)                                                                \
  __attribute__((constructor)) static void emulate_register_##name() {                     \
    ::emulate::Caller<&name, decltype(&name)>::add(#name, EMULATE_SOURCE_HASH);            \
  }                                                                                        \
  static_assert(true, "")
