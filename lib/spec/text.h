#pragma once

// Words and numbers for messages and printed specs.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sdp {

/// The text as it stands in an error: of one that is long the beginning, and how long it is.
std::string shortened(std::string_view text);

/// The shortest decimal that reads back as the same double, in a form that every YAML version takes for a
/// number ("5.0e-04", "10", "0.1").
std::string shortest_decimal(double value);

std::string join(const std::vector<std::string_view>& words, std::string_view separator);

/// The candidate with the smallest edit distance (insert, delete, replace, swap of neighbours) to `word`;
/// none where even that one has fewer than half of its letters in place.
std::optional<std::string_view> nearest_name(std::string_view word,
                                             const std::vector<std::string_view>& candidates);

}  // namespace sdp
