// describe_fields: the table that `sdp-train spec` prints.

#include <array>
#include <sstream>

#include "spec/print.h"
#include "spec/text.h"
#include "spec/value_text.h"
#include "spec/visit.h"

namespace sdp {
namespace {

constexpr size_t kColumns = 110;
constexpr std::array<size_t, 3> kColumnWidths = {34, 17, 14};  // key, type, default; the last takes the rest

template <class T>
struct TypeName;
template <>
struct TypeName<bool> {
  static constexpr const char* text = "true or false";
};
template <>
struct TypeName<int64_t> {
  static constexpr const char* text = "whole number";
};
template <>
struct TypeName<double> {
  static constexpr const char* text = "number";
};
template <>
struct TypeName<std::string> {
  static constexpr const char* text = "text";
};
template <>
struct TypeName<Coverage> {
  static constexpr const char* text = "fraction";
};
template <NamedEnum Enum>
struct TypeName<Enum> {
  static constexpr const char* text = "name";
};
template <>
struct TypeName<std::vector<double>> {
  static constexpr const char* text = "list of numbers";
};
template <NamedEnum Enum>
struct TypeName<std::vector<Enum>> {
  static constexpr const char* text = "list of names";
};
template <class T>
struct TypeName<std::optional<T>> : TypeName<T> {};

/// The names a value may be made of; empty for other kinds.
template <class T>
struct AcceptedNames {
  static std::string text() { return {}; }
};
template <NamedEnum Enum>
struct AcceptedNames<Enum> {
  static std::string text() { return join(names_of<Enum>(), " | "); }
};
template <class T>
struct AcceptedNames<std::vector<T>> : AcceptedNames<T> {};
template <class T>
struct AcceptedNames<std::optional<T>> : AcceptedNames<T> {};
template <>
struct AcceptedNames<Coverage> {
  static std::string text() { return "p/n, or more than 0 and at most 1"; }
};

std::string wrap(std::string_view text, const std::string& indent) {
  std::istringstream words{std::string(text)};
  std::string wrapped;
  std::string line = indent;
  for (std::string word; words >> word;) {
    const bool is_first = line.size() == indent.size();
    if (!is_first && line.size() + 1 + word.size() > kColumns) {
      wrapped += line + "\n";
      line = indent + word;
    } else {
      line += (is_first ? "" : " ") + word;
    }
  }
  return wrapped + line + "\n";
}

std::string row(const std::array<std::string, 4>& cells) {
  std::string line;
  for (size_t i = 0; i < kColumnWidths.size(); ++i) {
    line += cells[i];
    // A cell wider than its column pushes the others on.
    line.append(cells[i].size() < kColumnWidths[i] ? kColumnWidths[i] - cells[i].size() : 1, ' ');
  }
  if (cells[3].empty()) return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  // What does not fit goes on below, in the same column.
  const std::string wrapped = wrap(cells[3], std::string(line.size(), ' '));
  return line + wrapped.substr(line.size());
}

template <class T>
std::string default_text(const FieldInfo& field, const T& value) {
  return field.required ? "(required)" : yaml_text(value);
}
template <class T>
std::string default_text(const FieldInfo&, const std::optional<T>&) {
  return "unset";
}

template <SpecStruct Spec>
void describe_struct(const std::string& parent, std::string& out) {
  const Spec defaults;
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    const std::string key = dotted(parent, field.key);
    if constexpr (SpecStruct<T>) {
      out += "\n" + key + ": " + std::string(field.doc) + "\n\n";
      describe_struct<T>(key, out);
    } else {
      std::string accepted = AcceptedNames<T>::text() + describe(field.limits);
      if (!field.unit.empty()) accepted += (accepted.empty() ? "[" : " [") + std::string(field.unit) + "]";
      out += row({key, TypeName<T>::text, default_text(field, defaults.*member), accepted});
      out += wrap(field.doc, "    ");
    }
  });
}

}  // namespace

std::string describe_fields() {
  std::string out = row({"key", "type", "default", "accepted [unit]"});
  out += std::string(kColumns, '-') + "\n";
  describe_struct<ExperimentSpec>("", out);
  return out;
}

}  // namespace sdp
