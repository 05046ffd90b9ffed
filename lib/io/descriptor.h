#pragma once

#include <unistd.h>

#include <utility>

namespace sdp {

/// A file descriptor that is closed with the object. A negative number, as open() returns it on failure,
/// stands for none.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}

  int number() const { return number_; }
  /// Leaves closing to the caller.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace sdp
