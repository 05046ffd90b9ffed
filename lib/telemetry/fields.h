#pragma once

// One list per record describes each member: its key, its quantity, and how the values of several lines or
// processes are combined. It is used to write and read lines of metrics.jsonl (record_json.h), to choose
// TensorBoard's scalars (run_metrics.h) and to build the columns of `report` (telemetry/columns.h). (Plans
// need none of this; spec/json_fields.h writes and reads them.)
//
// A record has `template <class Field> static constexpr void fields(Field& field)`. In the order of the
// members, which is that of the keys in a line, it calls
//     field(key, member pointer [, FieldOptions [, only_if]])
// A member is one of: bool, int64_t, double, std::string, a record; a std::vector or std::optional of one of
// these; or ByRank. With the key kInline, a record's keys stand among those of the enclosing record. A
// pointer to a const function without arguments is a derived value: written, but not read. If the record's
// function `only_if` returns false, the key is left out.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sdp {

/// The quantity of a number. Units are at the end of the keys (`_bytes`, `_ms`).
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

/// How the values of a run's lines are combined into one.
enum class OverLines {
  kLast,
  kMedian,  ///< without the first line, which includes the start, if there are others
  kMax
};

/// How the values of all processes are combined into one.
enum class OverProcesses { kMean, kMax, kSum };

/// How `report` compares a column with that of a baseline.
enum class Comparison { kNone, kRatio, kDifference };

/// Which of report's tables have a column; narrower tables leave some out.
enum class Detail { kTerminal, kDocument, kFile };

/// The key of a record whose keys stand among those of the enclosing record.
inline constexpr std::string_view kInline = {};

struct FieldOptions {
  Quantity quantity = Quantity::kNumber;
  OverLines over_lines = OverLines::kLast;
  OverProcesses over_processes = OverProcesses::kMean;
  /// Shown by TensorBoard: for a list the mean, for ByRank combined by over_processes.
  bool is_scalar = false;
  bool is_required = false;
  /// Title of its column in `report`, which adds the unit; empty: no column. Only training lines get columns
  /// from their list (telemetry/columns.cpp).
  std::string_view title = {};
  Comparison comparison = Comparison::kNone;
  Detail detail = Detail::kDocument;
  /// Value if a line lacks the key, as in lines of older programs. Integers, strings and lists keep their
  /// default.
  double if_missing = std::numeric_limits<double>::quiet_NaN();
};

/// Options of the field `step`, which every line has.
inline constexpr FieldOptions kStepField = {.quantity = Quantity::kWhole, .is_required = true};

template <class Record>
using OnlyIf = bool (Record::*)() const;

/// A record per process. In a line it is an object with one list per key.
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

/// Whether the sizes of the listed members add up to the size of the record. A forgotten member makes the
/// record larger, unless it fits into padding (a bool).
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

/// What the record's list says of a member; a member that is not listed does not compile.
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

/// Adds another process's values, combined by over_processes: kMax or kSum.
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
