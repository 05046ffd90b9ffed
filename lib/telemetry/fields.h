#pragma once

// One list per record says what is told of each member: its key, its quantity, and how values of several
// lines or processes become one. Lines of metrics.jsonl are written and read by it (record_json.h),
// TensorBoard's scalars are chosen by it (run_metrics.h), and columns of `report` are made of it
// (report/measures.h). (Plans, which have none of this, are written and read by spec/json_fields.h.)
//
// A record has `template <class Field> static constexpr void fields(Field& field)`, which calls, in the order
// of the members and of the keys in a line,
//     field(key, member pointer [, FieldOptions [, only_if]])
// A member is one of: bool, int64_t, double, std::string, a record; a std::vector or std::optional of one of
// these; or ByRank. With the key kInline it is a record whose keys stand among those of this one. A pointer
// to a const function without arguments is a value that is derived from others: written, and not read. Where
// the function `only_if` of the record is false the key is left out.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sdp {

/// What a number is. Units are at the end of the keys (`_bytes`, `_ms`).
enum class Quantity {
  kNumber,
  kShare,  ///< in 0..1
  kLoss,   ///< nats; the key has no unit
  kPerplexity,
  kWhole,
  kCount,
  kBytes,
  kMilliseconds,
  kSeconds
};

/// How the values of a run's lines become one.
enum class OverLines {
  kLast,
  kMedian,  ///< without the first line, which has the start in it, where there are others
  kMax
};

/// How the values of all processes become one.
enum class OverProcesses { kMean, kMax, kSum };

/// How `report` compares a column with a baseline's.
enum class Comparison { kNone, kRatio, kDifference };

/// Which of report's tables have a column: those with less room leave some out.
enum class Detail { kTerminal, kDocument, kFile };

/// The key of a record whose keys stand among those of the record it is a member of.
inline constexpr std::string_view kInline = {};

struct FieldOptions {
  Quantity quantity = Quantity::kNumber;
  OverLines over_lines = OverLines::kLast;
  OverProcesses over_processes = OverProcesses::kMean;
  bool is_scalar = false;  ///< TensorBoard shows it: of a list the mean, of ByRank by over_processes
  bool is_required = false;
  /// Of its column in `report`, which adds the unit; empty: it has none. Training lines alone have columns by
  /// their list (report/measures.cpp).
  std::string_view title = {};
  Comparison comparison = Comparison::kNone;
  Detail detail = Detail::kDocument;
  /// Of a line without the key, as older programs have written it. Integers, strings and lists keep their
  /// default.
  double if_missing = std::numeric_limits<double>::quiet_NaN();
};

template <class Record>
using OnlyIf = bool (Record::*)() const;

/// A record of each process. Its line has an object with a list for each of its keys.
template <class Record>
struct ByRank {
  std::vector<Record> ranks = {};

  bool operator==(const ByRank&) const = default;
};

namespace detail {
struct IgnoreRecordField {
  template <class Record, class Member>
  constexpr void operator()(std::string_view, Member Record::*, const FieldOptions& = {},
                            OnlyIf<Record> = nullptr) const {}
};
constexpr size_t rounded_up(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}
}  // namespace detail

template <class T>
concept Listed = requires(detail::IgnoreRecordField& field) {
  T::fields(field);
};

/// Whether the members of a record's list, one after another, take as many bytes as the record. One that was
/// forgotten makes it larger, unless it fits between two others (a bool).
template <Listed Record>
consteval bool lists_every_member() {
  size_t bytes = 0;
  const auto field = [&]<class Member>(std::string_view, Member Record::*, const FieldOptions& = {},
                                       OnlyIf<Record> = nullptr) {
    if constexpr (!std::is_function_v<Member>)
      bytes = detail::rounded_up(bytes, alignof(Member)) + sizeof(Member);
  };
  Record::fields(field);
  return detail::rounded_up(bytes, alignof(Record)) == sizeof(Record);
}

struct RecordField {
  std::string_view key;
  FieldOptions options;
};

template <class Record, class Member>
Record record_of_pointer(Member Record::*);
template <auto kMember>
using RecordOf = decltype(record_of_pointer(kMember));

/// What its record's list says of a member; a member that is not listed does not compile.
template <auto kMember>
consteval RecordField record_field() {
  std::optional<RecordField> found;
  const auto field = [&]<class Member>(std::string_view key, Member RecordOf<kMember>::*member,
                                       const FieldOptions& options = {},
                                       OnlyIf<RecordOf<kMember>> = nullptr) {
    if constexpr (std::is_same_v<decltype(member), std::remove_const_t<decltype(kMember)>>)
      if (member == kMember) found = RecordField{key, options};
  };
  RecordOf<kMember>::fields(field);
  return found.value();
}

/// Adds what another process has, by over_processes: kMax or kSum.
template <Listed Record>
void combine(Record& all, const Record& other) {
  const auto field = [&]<class Number>(std::string_view, Number Record::*member, const FieldOptions& options,
                                       OnlyIf<Record> = nullptr) {
    static_assert(std::is_arithmetic_v<Number>);
    Number& value = all.*member;
    if (options.over_processes == OverProcesses::kSum)
      value += other.*member;
    else if (other.*member > value)
      value = other.*member;
  };
  Record::fields(field);
}

}  // namespace sdp
