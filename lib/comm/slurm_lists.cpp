#include "comm/ranks.h"

#include <optional>
#include <string_view>

#include "spec/error.h"
#include "spec/text.h"

namespace sdp {
namespace {

constexpr size_t kLargestList = 65536;

[[noreturn]] void malformed(const std::string& variable, const std::string& list,
                            const std::string& expected) {
  throw UsageError(
      variable + " is \"" + list + "\"; expected " + expected +
      ". srun sets this variable; do not change it, or set MASTER_ADDR and start with torchrun.");
}

/// Splits at the commas outside brackets. Returns nullopt if brackets do not match.
std::optional<std::vector<std::string_view>> split_outside_brackets(std::string_view list) {
  std::vector<std::string_view> parts;
  bool inside = false;
  size_t begin = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[' || list[i] == ']') {
      if (inside == (list[i] == '[')) return std::nullopt;
      inside = list[i] == '[';
    } else if (list[i] == ',' && !inside) {
      parts.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  if (inside) return std::nullopt;
  parts.push_back(list.substr(begin));
  return parts;
}

std::string padded(int value, size_t digits) {
  std::string text = std::to_string(value);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

/// Expands the text between brackets: "03-05,9" -> 03, 04, 05, 9.
std::optional<std::vector<std::string>> expand_ranges(std::string_view ranges) {
  std::vector<std::string> numbers;
  while (true) {
    const size_t comma = ranges.find(',');
    const std::string_view range = ranges.substr(0, comma);
    const size_t dash = range.find('-');
    const std::string_view first_text = range.substr(0, dash);
    const auto first = number_in<int>(first_text);
    const auto last = dash == std::string_view::npos ? first : number_in<int>(range.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    if (numbers.size() + static_cast<size_t>(*last - *first) >= kLargestList) return std::nullopt;
    for (int value = *first; value <= *last; ++value)
      numbers.push_back(padded(value, first_text.size()));
    if (comma == std::string_view::npos) return numbers;
    ranges.remove_prefix(comma + 1);
  }
}

/// Expands one name with any number of brackets.
std::optional<std::vector<std::string>> expand_name(std::string_view name) {
  if (name.empty()) return std::nullopt;
  std::vector<std::string> hosts = {""};
  while (!name.empty()) {
    const size_t open = name.find('[');
    for (std::string& host : hosts)
      host += name.substr(0, open);
    if (open == std::string_view::npos) break;
    const size_t close = name.find(']');
    const auto numbers = expand_ranges(name.substr(open + 1, close - open - 1));
    if (!numbers || hosts.size() * numbers->size() > kLargestList) return std::nullopt;
    std::vector<std::string> longer;
    for (const std::string& host : hosts)
      for (const std::string& value : *numbers)
        longer.push_back(host + value);
    hosts = std::move(longer);
    name.remove_prefix(close + 1);
  }
  return hosts;
}

}  // namespace

std::vector<std::string> expand_node_list(const std::string& variable, const std::string& list) {
  const std::string expected = "a list of hosts such as node[01-04,7],login";
  const auto names = split_outside_brackets(list);
  if (!names) malformed(variable, list, expected);
  std::vector<std::string> hosts;
  for (const std::string_view name : *names) {
    const auto expanded = expand_name(name);
    if (!expanded || hosts.size() + expanded->size() > kLargestList) malformed(variable, list, expected);
    hosts.insert(hosts.end(), expanded->begin(), expanded->end());
  }
  return hosts;
}

std::vector<int> expand_tasks_per_node(const std::string& variable, const std::string& list) {
  const std::string expected = "a list of tasks per node such as 4(x2),3";
  std::vector<int> tasks;
  std::string_view rest = list;
  while (true) {
    const size_t comma = rest.find(',');
    std::string_view entry = rest.substr(0, comma);
    int repeats = 1;
    if (const size_t open = entry.find("(x"); open != std::string_view::npos) {
      if (entry.back() != ')') malformed(variable, list, expected);
      const auto times = number_in<int>(entry.substr(open + 2, entry.size() - open - 3));
      if (!times || *times < 1) malformed(variable, list, expected);
      repeats = *times;
      entry = entry.substr(0, open);
    }
    const auto count = number_in<int>(entry);
    if (!count || *count < 1 || tasks.size() + static_cast<size_t>(repeats) > kLargestList)
      malformed(variable, list, expected);
    tasks.insert(tasks.end(), static_cast<size_t>(repeats), *count);
    if (comma == std::string_view::npos) return tasks;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace sdp
