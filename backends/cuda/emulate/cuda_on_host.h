// The header that a CUDA kernel file is compiled with by g++, so that it runs on a machine without
// a GPU:  g++ -std=c++17 -ffp-contract=off -include cuda_on_host.h -x c++ kernel.cu
// It gives every name that the kernels of this project use, with the meaning that the device gives
// it, bit for bit; what can't be had bit for bit is poisoned and does not compile. It must never
// include <math.h>: a function of the host's library would silently stand in for a device's.
#pragma once
#ifdef __CUDACC__
#error "this header is for the host; the device compiler has these names itself"
#endif

// Tells kernels, and only kernels, that they are compiled for the host.
#define LOCKSTEP_EMULATE 1

#include "shim/language.h"

#include "shim/arithmetic.h"
#include "shim/atomics.h"
#include "shim/convert.h"
#include "shim/tensor.h"
#include "shim/warp.h"
#include "shim/wgmma.h"

#include "shim/register.h"

// Last, since the headers above must still be able to say these words.
#include "shim/poison.h"
