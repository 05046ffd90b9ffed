#pragma once

// Damaged files, made of whole ones.

#include <cstdint>
#include <span>
#include <string>

namespace sdp::fuzz {

/// One of the `seeds` with one to three kinds of damage: flipped bits, other numbers (binary or in digits),
/// zeroed, inserted, removed or repeated blocks, a cut end, another seed's end. Half of it falls into the
/// first `header_bytes`. A function of its arguments alone.
std::string mutate(std::span<const std::string> seeds, size_t header_bytes, uint64_t number);

}  // namespace sdp::fuzz
