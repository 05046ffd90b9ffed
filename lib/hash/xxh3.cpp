#include "hash/xxh3.h"

#include <xxhash.h>

#include <new>

namespace sdp {

void Xxh3::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Xxh3::Xxh3() : state_(XXH3_createState()) {
  if (!state_ || XXH3_128bits_reset(state_.get()) != XXH_OK) throw std::bad_alloc();
}

void Xxh3::update(std::span<const std::byte> data) {
  if (!data.empty()) XXH3_128bits_update(state_.get(), data.data(), data.size());
}

std::string Xxh3::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string xxh3_128(std::string_view text) {
  Xxh3 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

}  // namespace sdp
