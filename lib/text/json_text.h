#pragma once

#include <string>

namespace sdp {

/// The text of a nlohmann::json or ordered_json. Bytes that are not UTF-8, as in the names of files, become
/// U+FFFD: dump() would throw. `indent`: spaces per level; -1 for a single line.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace sdp
