// Modules and functions: what was loaded, and which kernels stand for it.
#pragma once
#include "../runtime/runtime.h"
#include "cuda_api.h"

namespace emulate {

// An image of the stand-in compiler says which source it was made from, behind this word.
#define EMULATE_IMAGE_MARK "LOCKSTEP-EMULATE-SOURCE="

struct Function {
  const Kernel* kernel;
  uint64_t source_hash;
  int dynamic_shared_max;
};

// Null if the handle was never given out.
Function* find_function(CUfunction handle);

CUresult initialise();

}  // namespace emulate
