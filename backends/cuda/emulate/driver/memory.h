// Device memory and pinned host memory of the stand-in: who may touch which bytes.
#pragma once
#include <string>
#include <vector>

#include "cuda_api.h"

namespace emulate {

struct Allocation {
  char* base;
  size_t bytes;
  char* pages;
  size_t page_bytes;
  bool free_queued;  // a stream will free it: no new work may name it
};

enum class Space { device, pinned };

// All of these assume that the driver's lock is held.
void reserve_memory();
size_t memory_capacity();
size_t memory_in_use();

// Null if the capacity is used up. The caller fills it with NaN, at once or in a stream's order.
char* allocate(Space space, size_t bytes);
// Freed pages can't be touched any more, and their addresses are never given out again.
bool release(Space space, const void* base);
Allocation* find_allocation(Space space, const void* address);
bool is_live(Space space, const void* address, size_t bytes);
bool is_reserved(Space space, const void* address);
void fill_with_nan(char* begin, size_t bytes);

// What has not been freed; empty text if nothing.
size_t leaked_allocations();
std::string describe_leaks();

void catch_bad_addresses();

}  // namespace emulate
