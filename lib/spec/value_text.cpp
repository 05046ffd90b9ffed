#include "spec/value_text.h"

#include <nlohmann/json.hpp>

#include "spec/text.h"

namespace sdp {

std::string yaml_text(bool value) {
  return value ? "true" : "false";
}

std::string yaml_text(int64_t value) {
  return std::to_string(value);
}

std::string yaml_text(double value) {
  return shortest_decimal(value);
}

std::string yaml_text(const std::string& value) {
  return nlohmann::json(value).dump();  // a JSON string is a YAML string
}

std::string yaml_text(const Coverage& value) {
  return value.text;
}

}  // namespace sdp
