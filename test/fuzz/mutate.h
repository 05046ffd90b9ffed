#pragma once

// Damaged files, made of whole ones.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sdp::fuzz {

/// Where damage is likely to matter.
struct Targets {
  size_t header_bytes;             ///< in front of a file: half of all damage
  std::span<const size_t> fields;  ///< offsets of lengths and the like: a quarter, where there are any
};

/// One of the `seeds` with one to three kinds of damage: flipped bits, other numbers (binary or in digits),
/// zeroed, inserted, removed or repeated blocks, a cut end, another seed's end. A function of its arguments
/// alone.
std::string mutate(std::span<const std::string> seeds, const Targets& targets, uint64_t number);

}  // namespace sdp::fuzz
