#pragma once

// A component that comes in several kinds. Each kind has its own keys.

#include <any>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "spec/text.h"
#include "spec/visit.h"

namespace sdp {

namespace detail {
template <class T>
inline constexpr bool is_one_of = false;

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
  detail::call_with_kinds(static_cast<const typename T::Kinds::Types*>(nullptr),
                          std::forward<Function>(function));
}

template <class List>
class OneOf;

template <class List>
inline constexpr bool detail::is_one_of<OneOf<List>> = true;

/// One of several kinds, and one of that kind's names. In a field list, a OneOf is a key whose value is a
/// name. The name chooses the kind; the keys of that kind are in the same section of the YAML file.
///
/// A kind is a struct with a field list and `static constexpr std::array<std::string_view, n> names`, for
/// example the sizes of one model. No two kinds have a name in common. `List::Types` is a std::tuple of the
/// kinds. Copies and `is` do not need its definition, so that code that only passes a spec on is not compiled
/// again when a kind is added.
template <class List>
class OneOf {
 public:
  using Kinds = List;

  /// The first kind.
  OneOf() : OneOf(std::tuple_element_t<0, typename List::Types>()) {}
  /// The kind under its first name, or under `name`.
  template <class Kind>
  requires requires { Kind::names; }  // NOLINTNEXTLINE(google-explicit-constructor)
  OneOf(Kind kind, std::string_view name = Kind::names[0])
      : name_(known_name<Kind>(name)), value_(std::move(kind)) {}
  /// The kind that has the name, with its defaults.
  explicit OneOf(std::string_view name) {
    if (!choose(name)) throw std::logic_error("no kind is called " + std::string(name));
  }

  bool operator==(const OneOf& other) const {
    return name_ == other.name_ &&
           visit([&]<class Kind>(const Kind& kind) { return other.is<Kind>() && kind == other.as<Kind>(); });
  }

  std::string_view name() const { return name_; }

  /// Chooses the kind that has the name. If it is the current kind, its values are kept; another kind starts
  /// with its defaults. Returns false and changes nothing if no kind has the name.
  bool choose(std::string_view name) {
    bool chosen = false;
    for_each_kind<OneOf>([&]<class Kind>() { chosen = chosen || choose_kind<Kind>(name); });
    return chosen;
  }

  template <class Function>
  decltype(auto) visit(Function&& function) const {
    return visit_from<0>(*this, function);
  }
  template <class Function>
  decltype(auto) visit(Function&& function) {
    return visit_from<0>(*this, function);
  }

  template <class Kind>
  bool is() const {
    return std::any_cast<Kind>(&value_) != nullptr;
  }
  /// Throws std::bad_any_cast if it is another kind.
  template <class Kind>
  const Kind& as() const {
    return std::any_cast<const Kind&>(value_);
  }
  template <class Kind>
  Kind& as() {
    return std::any_cast<Kind&>(value_);
  }

  static std::vector<std::string_view> all_names() {
    std::vector<std::string_view> names;
    for_each_kind<OneOf>(
        [&]<class Kind>() { names.insert(names.end(), Kind::names.begin(), Kind::names.end()); });
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
  template <size_t k, class Self, class Function>
  static decltype(auto) visit_from(Self& self, Function& function) {
    using Types = typename List::Types;
    using Kind = std::tuple_element_t<k, Types>;
    if constexpr (k + 1 < std::tuple_size_v<Types>)
      if (!self.template is<Kind>()) return visit_from<k + 1>(self, function);
    return function(self.template as<Kind>());
  }

  std::string_view name_;
  std::any value_;
};

/// The names of a kind, joined: "resnet18, wide_resnet18".
template <class Kind>
std::string names_of_kind(std::string_view separator) {
  return join({Kind::names.begin(), Kind::names.end()}, separator);
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
