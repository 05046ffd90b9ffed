#pragma once

// Converts records (fields.h) to JSON and back. JSON has neither NaN nor infinity: both are written as null,
// and null is read as NaN.

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "telemetry/fields.h"

namespace sdp {

/// Names the key of a record that is missing or has a value of another type.
struct RecordError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsByRank = false;
template <class Record>
inline constexpr bool kIsByRank<ByRank<Record>> = true;

}  // namespace detail

template <Listed Record>
void put_fields(const Record& record, nlohmann::ordered_json& json);

template <class Record>
nlohmann::ordered_json json_of_ranks(const std::vector<Record>& ranks) {
  auto json = nlohmann::ordered_json::object();
  const auto field = [&]<class Member>(std::string_view key, Member Record::*member, const FieldOptions& = {},
                                       OnlyIf<Record> = nullptr) {
    auto list = nlohmann::ordered_json::array();
    for (const Record& record : ranks)
      list.push_back(record.*member);
    json[std::string(key)] = std::move(list);
  };
  Record::fields(field);
  return json;
}

template <class T>
nlohmann::ordered_json json_of_value(const T& value) {
  if constexpr (detail::kIsVector<T>) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& element : value)
      list.push_back(json_of_value(element));
    return list;
  } else if constexpr (detail::kIsByRank<T>) {
    return json_of_ranks(value.ranks);
  } else if constexpr (Listed<T>) {
    nlohmann::ordered_json json;
    put_fields(value, json);
    return json;
  } else {
    return value;
  }
}

/// Adds the record's keys. An unset optional adds none.
template <Listed Record>
void put_fields(const Record& record, nlohmann::ordered_json& json) {
  const auto put = [&]<class T>(std::string_view key, const T& value) {
    if constexpr (detail::kIsOptional<T>) {
      if (value) json[std::string(key)] = json_of_value(*value);
    } else {
      json[std::string(key)] = json_of_value(value);
    }
  };
  const auto field = [&]<class Member>(std::string_view key, Member Record::*member, const FieldOptions& = {},
                                       OnlyIf<Record> only_if = nullptr) {
    if (only_if && !(record.*only_if)()) return;
    if constexpr (std::is_function_v<Member>) {
      put(key, (record.*member)());
    } else {
      if constexpr (Listed<Member>)
        if (key == kInline) return put_fields(record.*member, json);
      put(key, record.*member);
    }
  };
  Record::fields(field);
}

template <Listed Record>
void take_fields(Record& record, const nlohmann::json& json);

template <class T>
T value_of_json(const nlohmann::json& json);

/// Members whose list is missing keep their value. The number of ranks is the length that all lists share.
template <class Record>
std::vector<Record> ranks_of_json(const nlohmann::json& json) {
  size_t count = std::numeric_limits<size_t>::max();
  for (const auto& list : json)
    count = std::min(count, list.size());
  std::vector<Record> ranks(json.empty() ? 0 : count);
  const auto field = [&]<class Member>(std::string_view key, Member Record::*member,
                                       const FieldOptions& options = {}, OnlyIf<Record> = nullptr) {
    const auto found = json.find(std::string(key));
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (found != json.end())
        ranks[rank].*member = value_of_json<Member>(found->at(rank));
      else if constexpr (std::is_same_v<Member, double>)
        ranks[rank].*member = options.if_missing;
    }
  };
  Record::fields(field);
  return ranks;
}

template <class T>
T value_of_json(const nlohmann::json& json) {
  if constexpr (detail::kIsOptional<T>) {
    return value_of_json<typename T::value_type>(json);
  } else if constexpr (detail::kIsVector<T>) {
    T values;
    for (const auto& element : json.get_ref<const nlohmann::json::array_t&>())
      values.push_back(value_of_json<typename T::value_type>(element));
    return values;
  } else if constexpr (detail::kIsByRank<T>) {
    return {ranks_of_json<typename decltype(T::ranks)::value_type>(json)};
  } else if constexpr (Listed<T>) {
    T record;
    take_fields(record, json);
    return record;
  } else if constexpr (std::is_same_v<T, double>) {
    return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
  } else {
    return json.get<T>();
  }
}

/// Reads the record's keys and ignores other keys. Throws RecordError.
template <Listed Record>
void take_fields(Record& record, const nlohmann::json& json) {
  const auto field = [&]<class Member>(std::string_view key, Member Record::*member,
                                       const FieldOptions& options = {}, OnlyIf<Record> = nullptr) {
    if constexpr (!std::is_function_v<Member>) {
      if constexpr (Listed<Member>)
        if (key == kInline) return take_fields(record.*member, json);
      const auto found = json.find(std::string(key));
      if (found == json.end()) {
        if (options.is_required) throw RecordError("the key \"" + std::string(key) + "\" is missing");
        if constexpr (std::is_same_v<Member, double>) record.*member = options.if_missing;
        return;
      }
      try {
        record.*member = value_of_json<Member>(*found);
      } catch (const nlohmann::json::exception& error) {
        throw RecordError("the key \"" + std::string(key) + "\": " + error.what());
      }
    }
  };
  Record::fields(field);
}

}  // namespace sdp
