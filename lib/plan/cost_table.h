#pragma once

// What workers or processes hold, compute and send, as a table.

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace sdp {

/// A row for each of plan.json's `costs` (an array of `per_worker` or `per_process`), under its number; those
/// that are equal in all printed figures share a row. Where there are several rows, the smallest, the mean
/// and the largest of each column follow, over all of `costs`. `dense`: data parallelism's, as the last row;
/// may be null.
std::string cost_table(const std::string& of, const nlohmann::ordered_json& costs,
                       const nlohmann::ordered_json* dense);

}  // namespace sdp
