// Atomic operations, on shared and on global memory alike. One operating system thread runs all
// threads of a grid, so a plain read and write is atomic; only the race checker needs to be told.
// There is none on floats: their sum would depend on the order of arrival.
#pragma once
#include "language.h"

namespace emulate {

// Tells the race checker that this access is atomic.
void touch_atomic(const void* address, unsigned bytes, void* caller);

template <class T>
struct DeviceHasAtomic {
  static constexpr bool value = std::is_same<T, int>::value || std::is_same<T, unsigned>::value ||
                                std::is_same<T, unsigned long long>::value;
};

template <class T, class Update>
EMULATE_EXACT T atomic(T* address, void* caller, Update update) {
  static_assert(DeviceHasAtomic<T>::value, "int, unsigned and unsigned long long only");
  if ((uintptr_t)address % sizeof(T)) fail("atomic on %p, which is not aligned", (void*)address);
  touch_atomic(address, sizeof(T), caller);
  T old = *address;
  *address = update(old);
  return old;
}

// Keeps the second argument from taking part in deduction, so that `atomicAdd(&u, 1)` is accepted.
template <class T>
using Same = typename std::common_type<T>::type;

}  // namespace emulate

#define EMULATE_ATOMIC(name, result)                                                       \
  template <class T>                                                                       \
  EMULATE_UNSEEN T name(T* address, emulate::Same<T> value) {                              \
    return emulate::atomic(address, __builtin_return_address(0),                           \
                           [value](T old) -> T { return (result); });                      \
  }
EMULATE_ATOMIC(atomicAdd, old + value)
EMULATE_ATOMIC(atomicSub, old - value)
EMULATE_ATOMIC(atomicMax, old < value ? value : old)
EMULATE_ATOMIC(atomicMin, value < old ? value : old)
EMULATE_ATOMIC(atomicAnd, old& value)
EMULATE_ATOMIC(atomicOr, old | value)
EMULATE_ATOMIC(atomicXor, old ^ value)
EMULATE_ATOMIC(atomicExch, ((void)old, value))

template <class T>
EMULATE_UNSEEN T atomicCAS(T* address, emulate::Same<T> expected, emulate::Same<T> value) {
  return emulate::atomic(address, __builtin_return_address(0),
                         [=](T old) -> T { return old == expected ? value : old; });
}
