#pragma once

#include <cstdint>
#include <string>

#include "spec/field.h"

namespace sdp {

/// Identifies a data set; the same for copies on other machines. Empty if none was read.
struct DataIdentity {
  int64_t samples = 0;
  std::string hash = {};  ///< of the images in memory, or of the names and sizes of files

  bool operator==(const DataIdentity&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("samples", &DataIdentity::samples, at_least(0));
    field("hash", &DataIdentity::hash);
  }
};

}  // namespace sdp
