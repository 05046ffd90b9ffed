#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "catch.h"
#include "experiment/spec/load.h"
#include "spec/error.h"

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

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A folder that is removed at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sdp-spec-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace sdp
