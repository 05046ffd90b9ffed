#pragma once

#include <functional>
#include <optional>
#include <string>

#include "spec/error.h"

namespace sdp {

/// Called by a reader for every problem, with a message that names the file, the member and the offset. It
/// may throw, which ends the reading; if it returns, the reader continues after the damaged part.
using OnProblem = std::function<void(const std::string& message)>;

/// Throws DataError with the message.
inline void throw_problem(const std::string& message) {
  throw DataError(message);
}

/// Returns the result of `read`, or std::nullopt if it throws a DataError, which is passed to `on_problem`.
/// `read` itself must not call on_problem, as the problem would be reported twice.
template <class Read>
auto attempt(const OnProblem& on_problem, const Read& read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const DataError& error) {
    on_problem(error.what());
    return std::nullopt;
  }
}

}  // namespace sdp
