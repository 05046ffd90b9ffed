#pragma once

// Damaged files, made from valid ones.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sdp::fuzz {

/// Places where damage is likely to have an effect.
struct Targets {
  size_t header_bytes;             ///< at the beginning of a file: half of all damage
  std::span<const size_t> fields;  ///< offsets of lengths and the like: a quarter, if there are any
};

/// One of the `seeds` with one to three kinds of damage: flipped bits, other numbers (binary or in digits),
/// zeroed, inserted, removed or repeated blocks, a cut end, another seed's end. The result depends only on
/// the arguments.
std::string mutate(std::span<const std::string> seeds, const Targets& targets, uint64_t number);

}  // namespace sdp::fuzz
