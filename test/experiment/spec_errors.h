#pragma once

#include <string>
#include <vector>

#include "catch.h"
#include "experiment/load.h"
#include "spec/error.h"
#include "temp_folder.h"

namespace sdp {

/// A spec with the two required keys in its first two lines; `rest` begins in line 3.
inline std::string spec_with(const std::string& rest) {
  return "name: test\ndata: {path: .}\n" + rest;
}

template <class Action>
std::string usage_error(Action&& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

inline std::string spec_error(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return usage_error([&] { parse_spec(text, "x.yaml", overrides); });
}

}  // namespace sdp
