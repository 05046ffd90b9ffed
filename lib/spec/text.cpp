#include "spec/text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

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
  constexpr size_t kKeptBytes = 80;
  if (text.size() <= kMostCharacters) return std::string(text);
  size_t end = kKeptBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;  // do not cut a UTF-8 character
  return std::string(text.substr(0, end)) + "... (" + std::to_string(text.size()) + " characters)";
}

std::optional<size_t> invalid_utf8_at(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  for (size_t at = 0; at < text.size();) {
    const unsigned first = byte(at);
    const size_t length = first < 0x80       ? 1
                          : first >> 5 == 6  ? 2
                          : first >> 4 == 14 ? 3
                          : first >> 3 == 30 ? 4
                                             : 0;
    if (length == 0 || length > text.size() - at) return at;
    uint32_t code = length == 1 ? first : first & (0xFFU >> (length + 1));
    for (size_t next = at + 1; next < at + length; ++next) {
      if (byte(next) >> 6 != 2) return at;
      code = code << 6 | (byte(next) & 0x3FU);
    }
    constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return at;
    at += length;
  }
  return std::nullopt;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return lower;
}

std::string wrong_content(std::string_view content) {
  content = content.substr(0, 1024);  // all show in their first line, after spaces and a byte order mark
  // The ninth byte of a gzip file is never a brace, as it is in a safetensors file with that length of
  // header.
  if (content.starts_with("\x1f\x8b\x08") && content.substr(0, 9).back() != '{')
    return "is compressed by gzip. Unpack it (gunzip)";
  if (content.starts_with("\x28\xb5\x2f\xfd")) return "is compressed by zstd. Unpack it (zstd -d)";
  if (content.starts_with("\xfd\x37zXZ")) return "is compressed by xz. Unpack it (unxz)";
  std::string begin = lower_case(content);
  begin.erase(0, begin.find_first_not_of(" \t\r\n\xEF\xBB\xBF"));
  if (begin.starts_with("version https://git-lfs"))
    return "is a Git LFS pointer in place of the file. Fetch the file with git lfs pull, or download it "
           "again";
  if (begin.starts_with("<!doctype html") || begin.starts_with("<html"))
    return "is an HTML page in place of the file. Download the file again, from its own address (on the "
           "Hugging Face hub: /resolve/ instead of /blob/)";
  return "";
}

bool has_shell_expansion(std::string_view text) {
  if (text.starts_with('~')) return true;
  for (size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    const char next = at + 1 < text.size() ? text[at + 1] : ' ';
    if (next == '_' || next == '{' || (next >= 'a' && next <= 'z') || (next >= 'A' && next <= 'Z'))
      return true;
  }
  return false;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string word;
  for (const char c : text)
    word += c == '\'' ? "'\\''" : std::string(1, c);
  return "'" + word + "'";
}

std::string double_quoted(const std::string& text) {
  return nlohmann::json(text).dump();
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
