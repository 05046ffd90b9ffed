#pragma once

// A spec as YAML.

#include <string>

#include "spec/one_of.h"
#include "spec/value_text.h"
#include "spec/visit.h"

namespace sdp {

/// Appends every key of the spec with its value, one per line. The value of an unset key is null.
template <HasFields Spec>
void print_yaml(const Spec& spec, const std::string& indent, std::string& out) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    out += indent + std::string(field.key) + ":";
    if constexpr (HasFields<T>) {
      out += "\n";
      print_yaml(spec.*member, indent + "  ", out);
    } else {
      out += " " + yaml_text(spec.*member) + "\n";
    }
    if constexpr (KindOfSeveral<T>)
      (spec.*member).visit([&](const auto& kind) { print_yaml(kind, indent, out); });
  });
}

}  // namespace sdp
