#pragma once

#include <cstdint>
#include <functional>

namespace sdp {

/// What a long operation calls now and then with how far it is: `done` of `total` parts of about the same
/// length. Called by the thread that called the operation.
using OnProgress = std::function<void(int64_t done, int64_t total)>;

/// For an operation that nobody watches.
inline void ignore_progress(int64_t, int64_t) {}

}  // namespace sdp
