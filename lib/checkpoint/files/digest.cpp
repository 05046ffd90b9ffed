#include "checkpoint/files/digest.h"

#include <cerrno>
#include <fstream>
#include <span>
#include <vector>

#include "hash/hash.h"
#include "io/file.h"

namespace sdp {

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
