#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace sdp {

/// Like std::allocator, but leaves new elements without a value uninitialized.
template <class T>
struct UninitializedAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };

  template <class U, class... Arguments>
  void construct(U* place, Arguments&&... arguments) {
    if constexpr (sizeof...(Arguments) == 0)
      ::new (static_cast<void*>(place)) U;
    else
      ::new (static_cast<void*>(place)) U(std::forward<Arguments>(arguments)...);
  }
};

/// Numbers that are about to be overwritten: resize() and Buffer(size) do not write zeros first, which for
/// the megabytes of a batch takes as long as writing the values.
template <class T>
using Buffer = std::vector<T, UninitializedAllocator<T>>;

}  // namespace sdp
