#pragma once

// Warnings for keys that were set but have no effect, or have an unexpected cost.

#include <algorithm>
#include <string>
#include <vector>

#include "spec/one_of.h"
#include "spec/position.h"
#include "spec/text.h"
#include "spec/visit.h"

namespace sdp {

namespace detail {

/// Warns of keys that only kinds other than the chosen one have: "llama_134m does not have this key".
template <KindOfSeveral T>
void advise_on_other_kinds(const T& chosen, const std::string& parent, const Positions& positions,
                           std::vector<std::string>& warnings) {
  const auto own = chosen.visit([]<class Kind>(const Kind&) { return keys_of<Kind>(); });
  std::vector<std::string_view> told = own;
  for_each_kind<T>([&]<class Kind>() {
    for (const std::string_view key : keys_of<Kind>()) {
      const std::string dotted_key = dotted(parent, key);
      if (!positions.is_set(dotted_key) || std::find(told.begin(), told.end(), key) != told.end()) continue;
      told.push_back(key);
      std::vector<std::string_view> with;
      for_each_kind<T>([&]<class Other>() {
        const auto keys = keys_of<Other>();
        if (std::find(keys.begin(), keys.end(), key) != keys.end())
          with.insert(with.end(), Other::names.begin(), Other::names.end());
      });
      warnings.push_back(positions.of(dotted_key).prefix() + dotted_key +
                         ": has no effect: " + std::string(chosen.name()) +
                         " does not have this key. It is a key of " + join(with, ", "));
    }
  });
}

}  // namespace detail

/// Collects the advice that the field lists give on keys that were set. Each message begins with the key's
/// position.
template <HasFields Spec>
void collect_advice(const Spec& spec, const std::string& parent, const Positions& positions,
                    std::vector<std::string>& warnings) {
  for_each_field<Spec>([&]<class T>(const Field<Spec>& field, T Spec::*member) {
    const std::string key = dotted(parent, field.key);
    if constexpr (HasFields<T>) collect_advice(spec.*member, key, positions, warnings);
    for (const auto& [applies, message] : field.advice)
      if (positions.is_set(key) && applies(spec))
        warnings.push_back(positions.of(key).prefix() + key + ": " + std::string(message));
    if constexpr (KindOfSeveral<T>) {
      (spec.*member).visit([&](const auto& kind) { collect_advice(kind, parent, positions, warnings); });
      detail::advise_on_other_kinds(spec.*member, parent, positions, warnings);
    }
  });
}

}  // namespace sdp
