#pragma once

#include <optional>

#include "data/dataset.h"
#include "spec/error.h"

namespace sdp {

/// What `read` returns; nothing where it throws a DataError, which goes to `on_problem`. `read` itself does
/// not call on_problem, which would get to know of a problem twice.
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
