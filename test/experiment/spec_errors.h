#pragma once

#include <string>
#include <vector>

#include "catch.h"
#include "experiment/load.h"
#include "spec/error.h"
#include "temp_folder.h"

namespace sdp {

/// A spec with a name in its first line; the data follow, unless they are in `rest`, which begins after them.
inline std::string spec_with(const std::string& rest) {
  return (rest.starts_with("data:") ? "name: test\n" : "name: test\ndata: {path: .}\n") + rest;
}

inline LoadedSpec load_with(const std::string& rest, const std::vector<std::string>& overrides = {}) {
  return parse_spec(spec_with(rest), "x.yaml", overrides);
}

inline ExperimentSpec load(const std::string& rest) {
  return load_with(rest).spec;
}

/// Empty if there is no error.
inline std::string spec_error(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return message_of<UsageError>([&] { parse_spec(text, "x.yaml", overrides); });
}

}  // namespace sdp
