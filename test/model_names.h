#pragma once

#include <string_view>
#include <vector>

#include "model/model_spec.h"

namespace sdp {

/// The first name of every model of this program.
inline std::vector<std::string_view> first_model_names() {
  std::vector<std::string_view> names;
  for_each_kind<ModelKind>([&]<class Kind>() {
    if constexpr (requires { Kind::tiny(); }) names.push_back(Kind::names[0]);
  });
  return names;
}

}  // namespace sdp
