#pragma once

// Words and numbers for messages and printed specs.

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sdp {

/// The text as error messages show it. A long text is cut to its beginning, followed by its length.
std::string shortened(std::string_view text);

/// The shortest decimal that reads back as the same double, in a form that every YAML version reads as a
/// number ("5.0e-04", "10", "0.1").
std::string shortest_decimal(double value);

/// The number that the whole text is. None: it is no number, or one that the type cannot hold.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// The offset of the first byte that is not UTF-8.
std::optional<size_t> invalid_utf8_at(std::string_view text);

/// A to Z become a to z; other bytes stay.
std::string lower_case(std::string_view text);

/// What a file holds that is there in place of the expected one, and what to do, to be put after the file's
/// name: a Git LFS pointer or an HTML page, as a failed download leaves, or the file still compressed. Empty:
/// none of them. `content`: the file's, or its first KiB.
std::string wrong_content(std::string_view content);

/// Whether a shell would replace a part of the text: a ~ at its beginning, or $NAME.
bool has_shell_expansion(std::string_view text);

inline constexpr std::string_view kNoShellExpansion =
    "the path itself: ~ and $NAME are only replaced by a shell";  ///< what to expect instead

/// The text as one word of a command that is pasted into a shell: in single quotes if it needs them.
std::string shell_word(std::string_view text);

/// The text as a string of YAML and JSON.
std::string double_quoted(const std::string& text);

std::string join(const std::vector<std::string_view>& words, std::string_view separator);

/// The candidate with the smallest edit distance (insert, delete, replace, swap of neighbours) to `word`.
/// None if that distance is half the length of the longer word or more.
std::optional<std::string_view> nearest_name(std::string_view word,
                                             const std::vector<std::string_view>& candidates);

/// "; did you mean 'model'?": the candidates that begin with `word`, otherwise the nearest one; empty if
/// there is none.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace sdp
