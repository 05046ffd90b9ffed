#pragma once

// MAT-files of version 5, written according to the description of the format.

#include <cstdint>
#include <string>
#include <vector>

namespace sdp::testing {

/// The file's first 128 bytes.
std::string mat_header(uint16_t version = 0x0100, const std::string& byte_order = "IM");

/// An element: tag, data, padding; at most 4 bytes of data in the tag itself.
std::string mat_element(uint32_t type, const std::string& data);

/// A variable, uncompressed. `array_class` 9 and `value_type` 2: uint8.
std::string mat_variable(const std::string& name, const std::vector<int32_t>& dimensions,
                         const std::string& values, uint32_t array_class = 9, uint32_t value_type = 2);

/// The same variable, compressed.
std::string mat_compressed(const std::string& variable);

}  // namespace sdp::testing
