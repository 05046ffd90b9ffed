#include "checkpoint/files/digest.h"

#include <xxhash.h>

#include <cerrno>
#include <fstream>
#include <new>
#include <vector>

#include "io/file.h"

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

FileDigest digest_file(const std::filesystem::path& path, const OnProgress& on_progress) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw_io_error("read", path, errno);
  std::error_code ignored;
  const auto size_bytes = static_cast<int64_t>(std::filesystem::file_size(path, ignored));
  std::vector<char> buffer(size_t{1} << 20);
  Xxh3 hash;
  FileDigest digest;
  while (in) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.update(std::as_bytes(std::span(buffer).first(static_cast<size_t>(in.gcount()))));
    digest.bytes += in.gcount();
    on_progress(digest.bytes, size_bytes);
  }
  if (in.bad()) throw_io_error("read", path, errno);
  digest.xxh3_128 = hash.hex();
  return digest;
}

}  // namespace sdp
