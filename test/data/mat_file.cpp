#include "mat_file.h"

#include <zlib.h>

namespace sdp::testing {

namespace {

std::string little_endian(uint32_t value, int bytes = 4) {
  std::string text;
  for (int byte = 0; byte < bytes; ++byte)
    text += static_cast<char>(value >> (8 * byte) & 0xff);
  return text;
}

}  // namespace

std::string mat_header(uint16_t version, const std::string& byte_order) {
  std::string header = "MATLAB 5.0 MAT-file";
  header.resize(124, ' ');
  return header + little_endian(version, 2) + byte_order;
}

std::string mat_element(uint32_t type, const std::string& data) {
  const auto bytes = static_cast<uint32_t>(data.size());
  std::string element = data.size() > 0 && data.size() <= 4
                            ? little_endian(bytes << 16 | type) + data
                            : little_endian(type) + little_endian(bytes) + data;
  element.resize((element.size() + 7) / 8 * 8, '\0');
  return element;
}

std::string mat_variable(const std::string& name, const std::vector<int32_t>& dimensions,
                         const std::string& values, uint32_t array_class, uint32_t value_type) {
  std::string sizes;
  for (const int32_t size : dimensions)
    sizes += little_endian(static_cast<uint32_t>(size));
  return mat_element(14, mat_element(6, little_endian(array_class) + little_endian(0)) +
                             mat_element(5, sizes) + mat_element(1, name) + mat_element(value_type, values));
}

std::string mat_compressed(const std::string& variable) {
  uLongf bytes = compressBound(variable.size());
  std::string data(bytes, '\0');
  compress(reinterpret_cast<Bytef*>(data.data()), &bytes, reinterpret_cast<const Bytef*>(variable.data()),
           variable.size());
  data.resize(bytes);
  return little_endian(15) + little_endian(static_cast<uint32_t>(bytes)) + data;
}

}  // namespace sdp::testing
