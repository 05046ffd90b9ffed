#pragma once

#include <optional>

#include "data/dataset.h"
#include "spec/error.h"

namespace sdp {

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
