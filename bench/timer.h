#pragma once

// Repeats a piece of work and prints how fast it went.

#include <cstdint>
#include <functional>
#include <string>

namespace sdp::bench {

/// Runs `round`, which does `count` things, once to warm up and then for `seconds` at least. Prints a line
///   NAME  things a second of processor time  things a second of wall-clock time
/// Processor time is this thread's: it says the same on a busy machine.
void measure(const std::string& name, int64_t count, double seconds, const std::function<void()>& round);

}  // namespace sdp::bench
