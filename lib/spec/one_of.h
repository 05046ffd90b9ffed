#pragma once

// A component that comes in several kinds. Each kind has its own keys.

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "spec/visit.h"

namespace sdp {

/// One of several kinds, and one of that kind's names. In a field list, a OneOf is a key whose value is a
/// name. The name chooses the kind; the keys of that kind are in the same section of the YAML file.
///
/// A kind is a struct with a field list and `static constexpr std::array<std::string_view, n> names`, for
/// example the sizes of one model. No two kinds have a name in common.
template <class... Kinds>
class OneOf {
 public:
  using Types = std::tuple<Kinds...>;

  OneOf() = default;
  /// The kind under its first name, or under `name`.
  template <class Kind>
  requires(std::is_same_v<Kind, Kinds> || ...)  // NOLINTNEXTLINE(google-explicit-constructor)
      OneOf(Kind kind, std::string_view name = Kind::names[0])
      : name_(known_name<Kind>(name)), value_(std::move(kind)) {}
  /// The kind that has the name, with its defaults.
  explicit OneOf(std::string_view name) {
    if (!choose(name)) throw std::logic_error("no kind is called " + std::string(name));
  }

  bool operator==(const OneOf&) const = default;

  std::string_view name() const { return name_; }

  /// Chooses the kind that has the name. If it is the current kind, its values are kept; another kind starts
  /// with its defaults. Returns false and changes nothing if no kind has the name.
  bool choose(std::string_view name) { return (choose_kind<Kinds>(name) || ...); }

  template <class Function>
  decltype(auto) visit(Function&& function) const {
    return std::visit(std::forward<Function>(function), value_);
  }
  template <class Function>
  decltype(auto) visit(Function&& function) {
    return std::visit(std::forward<Function>(function), value_);
  }

  template <class Kind>
  bool is() const {
    return std::holds_alternative<Kind>(value_);
  }
  /// Throws std::bad_variant_access if it is another kind.
  template <class Kind>
  const Kind& as() const {
    return std::get<Kind>(value_);
  }
  template <class Kind>
  Kind& as() {
    return std::get<Kind>(value_);
  }

  static std::vector<std::string_view> all_names() {
    std::vector<std::string_view> names;
    (names.insert(names.end(), Kinds::names.begin(), Kinds::names.end()), ...);
    return names;
  }

 private:
  template <class Kind>
  static std::optional<std::string_view> find_name(std::string_view name) {
    for (const std::string_view candidate : Kind::names)
      if (candidate == name) return candidate;
    return std::nullopt;
  }
  template <class Kind>
  static std::string_view known_name(std::string_view name) {
    const auto known = find_name<Kind>(name);
    if (!known) throw std::logic_error("the kind has no name " + std::string(name));
    return *known;
  }
  template <class Kind>
  bool choose_kind(std::string_view name) {
    const auto known = find_name<Kind>(name);
    if (!known) return false;
    if (!is<Kind>()) value_ = Kind();
    name_ = *known;
    return true;
  }

  std::string_view name_ = std::tuple_element_t<0, Types>::names[0];
  std::variant<Kinds...> value_;
};

namespace detail {
template <class T>
inline constexpr bool is_one_of = false;
template <class... Kinds>
inline constexpr bool is_one_of<OneOf<Kinds...>> = true;

template <class... Kinds, class Function>
void call_with_kinds(const std::tuple<Kinds...>*, Function&& function) {
  (function.template operator()<Kinds>(), ...);
}
}  // namespace detail

template <class T>
concept KindOfSeveral = detail::is_one_of<T>;

/// Calls `function.template operator()<Kind>()` for every kind, in order.
template <KindOfSeveral T, class Function>
void for_each_kind(Function&& function) {
  detail::call_with_kinds(static_cast<const typename T::Types*>(nullptr), std::forward<Function>(function));
}

/// The names of a kind, joined: "resnet18, wide_resnet18".
template <class Kind>
std::string names_of_kind(std::string_view separator) {
  std::string names;
  for (const std::string_view name : Kind::names)
    names += (names.empty() ? "" : std::string(separator)) + std::string(name);
  return names;
}

/// The keys of a section, including those of all its kinds, each once.
template <HasFields Spec>
std::vector<std::string_view> keys_with_kinds() {
  std::vector<std::string_view> keys;
  const auto add = [&](std::string_view key) {
    for (const std::string_view other : keys)
      if (other == key) return;
    keys.push_back(key);
  };
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*) {
    add(field.key);
    if constexpr (KindOfSeveral<T>)
      for_each_kind<T>([&]<class Kind>() {
        for (const std::string_view key : keys_of<Kind>())
          add(key);
      });
  });
  return keys;
}

/// The dotted keys of a spec and of all kinds, each once.
template <HasFields Spec>
void add_dotted_keys(const std::string& parent, std::vector<std::string>& keys) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*) {
    if constexpr (HasFields<T>) add_dotted_keys<T>(dotted(parent, field.key), keys);
  });
  for (const std::string_view key : keys_with_kinds<Spec>())
    keys.push_back(dotted(parent, key));
}

}  // namespace sdp
