#pragma once

// Walks the values of a spec.

#include <string>

#include "spec/one_of.h"
#include "spec/visit.h"

namespace sdp {

/// Calls `handler(dotted key, Field, value)` for every key of the spec, in the order of the field lists. The
/// keys of the chosen kind follow their OneOf.
template <HasFields Spec, class Handler>
void for_each_value(const Spec& spec, const std::string& parent, const Handler& handler) {
  for_each_field<Spec>([&]<class T>(const Field<Spec>& field, T Spec::*member) {
    const std::string key = dotted(parent, field.key);
    const T& value = spec.*member;
    if constexpr (HasFields<T>) {
      for_each_value(value, key, handler);
    } else {
      handler(key, field, value);
    }
    if constexpr (KindOfSeveral<T>)
      value.visit([&](const auto& kind) { for_each_value(kind, parent, handler); });
  });
}

}  // namespace sdp
