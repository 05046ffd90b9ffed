#pragma once

// Repeats a piece of work and prints its rate.

#include <cstdint>
#include <functional>
#include <string>

namespace sdp::bench {

/// Runs `round`, which processes `count` items, once to warm up and then for at least `seconds`. Prints a
/// line
///   NAME  items per second of processor time  items per second of wall-clock time
/// Processor time is this thread's, which depends little on other load.
void measure(const std::string& name, int64_t count, double seconds, const std::function<void()>& round);

}  // namespace sdp::bench
