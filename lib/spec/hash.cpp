#include "spec/hash.h"

#include <xxhash.h>

#include <array>
#include <bit>
#include <cstdint>
#include <new>

namespace sdp {
namespace {

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    for (const int shift : {4, 0})
      text += "0123456789abcdef"[static_cast<uint8_t>(byte) >> shift & 15];
  return text;
}

/// Fractional parts of the square roots of the first 8 primes, and of the cube roots of the first 64.
constexpr std::array<uint32_t, 8> kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
constexpr size_t kBlock = 64;

void add_block(std::array<uint32_t, 8>& sum, std::string_view block) {
  std::array<uint32_t, 64> w = {};
  for (size_t i = 0; i < kBlock; ++i)
    w[i / 4] = w[i / 4] << 8 | static_cast<uint8_t>(block[i]);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = sum;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                         kRounds[i] + w[i];
    const uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < sum.size(); ++i)
    sum[i] += added[i];
}

/// 32 bytes.
std::string sha256(std::string text) {
  const uint64_t bits = uint64_t{8} * text.size();
  text += '\x80';
  text.resize((text.size() + 8 + kBlock - 1) / kBlock * kBlock);
  for (size_t i = 0; i < 8; ++i)
    text[text.size() - 1 - i] = static_cast<char>(bits >> 8 * i);
  std::array<uint32_t, 8> sum = kStart;
  for (size_t at = 0; at < text.size(); at += kBlock)
    add_block(sum, std::string_view(text).substr(at, kBlock));
  std::string bytes;
  for (const uint32_t word : sum)
    for (const int shift : {24, 16, 8, 0})
      bytes += static_cast<char>(word >> shift);
  return bytes;
}

std::string xor_each(std::string text, char mask) {
  for (char& byte : text)
    byte = static_cast<char>(byte ^ mask);
  return text;
}

}  // namespace

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
  return hex_of({reinterpret_cast<const char*>(canonical.digest), sizeof canonical.digest});
}

std::string xxh3_128(std::string_view text) {
  Xxh3 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
  std::string block = key.size() > kBlock ? sha256(std::string(key)) : std::string(key);
  block.resize(kBlock);
  const std::string inner = sha256(xor_each(block, 0x36).append(message));
  return hex_of(sha256(xor_each(block, 0x5c) + inner));
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace sdp
