#include "spec/text.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace sdp {

std::string shortest_decimal(double value) {
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), end);
  // YAML 1.1 reads "5e-04" as a string: a number with an exponent needs a decimal point.
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) text.insert(exponent, ".0");
  return text;
}

std::string shortened(std::string_view text) {
  constexpr size_t kMostCharacters = 200;
  constexpr size_t kShown = 80;
  if (text.size() <= kMostCharacters) return std::string(text);
  size_t end = kShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;  // do not cut a UTF-8 character
  return std::string(text.substr(0, end)) + "... (" + std::to_string(text.size()) + " characters)";
}

std::string join(const std::vector<std::string_view>& words, std::string_view separator) {
  std::string joined;
  for (const auto word : words) {
    if (!joined.empty()) joined += separator;
    joined += word;
  }
  return joined;
}

namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::string_view> nearest_name(std::string_view word,
                                             const std::vector<std::string_view>& candidates) {
  std::optional<std::string_view> nearest;
  size_t smallest = 0;
  for (const auto candidate : candidates) {
    // A much longer word cannot be near, and a wrong key may be as long as the file.
    if (word.size() > 2 * candidate.size()) continue;
    const size_t distance = edit_distance(word, candidate);
    // Half of the letters may be wrong only in a word of two.
    if (distance > 1 ? 2 * distance >= std::max(word.size(), candidate.size()) : candidate.size() < 2)
      continue;
    if (nearest && distance >= smallest) continue;
    nearest = candidate;
    smallest = distance;
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  std::vector<std::string_view> names;
  for (const auto candidate : candidates)
    if (word.size() > 1 && candidate.starts_with(word)) names.push_back(candidate);
  if (names.empty())
    if (const auto nearest = nearest_name(word, candidates)) names.push_back(*nearest);
  if (names.empty()) return "";
  return names.size() == 1 ? "; did you mean '" + std::string(names[0]) + "'?"
                           : "; did you mean one of " + join(names, ", ") + "?";
}

}  // namespace sdp
