#pragma once

// Files and data sets that the tests of lib/data make for themselves.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "data/dataset.h"
#include "formats/image.h"
#include "temp_folder.h"

namespace sdp::testing {

/// A ustar archive, written from the format's description (POSIX pax, "ustar Interchange Format"). A member
/// is of type '0', a file, '1', a hard link to `target`, '2', a symbolic one, or another.
class TarWriter {
 public:
  TarWriter& add(const std::string& name, const std::string& data, char type = '0',
                 const std::string& target = "");
  /// With the two zero blocks that end an archive.
  std::string finish() const { return bytes_ + std::string(1024, '\0'); }
  const std::string& without_end() const { return bytes_; }

 private:
  std::string bytes_;
};

struct TarMember {
  std::string name, data;
  char type = '0';
  std::string target = {};
};

/// A whole archive.
std::string tar_of(const std::vector<TarMember>& members);

struct JpegOptions {
  int across = 1, down = 1;   ///< pixels of a color sample: 2 and 2 for 4:2:0, 2 and 1 for 4:2:2
  bool odd_sampling = false;  ///< of 3 components: 2x1, 1x4 and 1x1 samples in 2x4 pixels
  bool progressive = false;
  bool ycck = false;  ///< of 4 components
  int quality = 100;
};

/// A JPEG of pixels [height, width, components] with 1 (gray), 3 (RGB) or 4 (CMYK) components.
std::string encode_jpeg(int width, int height, const std::vector<uint8_t>& pixels,
                        const JpegOptions& options = {});

/// The pixels [height, width, 3] of a box of a JPEG at the scale `eighths` / 8.
std::vector<uint8_t> decoded(std::span<const uint8_t> jpeg, const Box& box, int eighths);

/// The same box of the pixels [height, width, 3] of a whole image.
std::vector<uint8_t> cut_out(std::span<const uint8_t> rgb, int64_t width, const Box& box);

inline std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

/// A JPEG whose pixels all have `color`.
std::string flat_jpeg(int width, int height, const std::vector<uint8_t>& color);

/// A safetensors file (io/safetensors.h) of these bytes.
std::string safetensors_bytes(const std::string& header, const std::string& data);

/// Images of a set that is held in memory. `pixels`: [N, H, W, C].
struct ArrayContent {
  std::string pixels, labels;
};
/// Their file (data/image_array.h).
std::string array_file(const HeldImages& set, const ArrayContent& content);

/// A shard of tokens as llm.c writes it; `stated` is the number of tokens in the header if it is another.
std::string token_shard(const std::vector<uint16_t>& tokens, std::optional<int32_t> stated = {},
                        int32_t magic = 20240520, int32_t version = 1);
/// The same with tokens of 32 bits.
std::string wide_token_shard(const std::vector<uint32_t>& tokens);
/// The 1024 bytes before the tokens.
std::string token_header(uint32_t stated, int32_t magic, int32_t version);

/// The data set `tokens` in a folder.
DataSpec tokens_in(const std::filesystem::path& folder, int64_t sequence_length);

/// Image i is a fixed pattern that depends on i; its label is i % 10.
class PatternDataset final : public ImageDataset {
 public:
  explicit PatternDataset(int64_t size, OnError on_error = OnError::kError)
      : ImageDataset(on_error), size_(size) {}

  int64_t size() const override { return size_; }
  DataIdentity identity() const override { return {.samples = size_}; }
  ImageShape shape() const override { return {.channels = 3, .height = 6, .width = 5}; }
  int64_t num_classes() const override { return 10; }
  int64_t label(int64_t index) const override { return index % 10; }
  void read(int64_t index, std::span<uint8_t> chw) const override {
    if (before_read) before_read(index);
    for (size_t i = 0; i < chw.size(); ++i)
      chw[i] = static_cast<uint8_t>(index * 31 + static_cast<int64_t>(i) * 7);
  }
  const Normalization& normalization() const override { return normalization_; }

  std::function<void(int64_t)> before_read;

 private:
  int64_t size_;
  Normalization normalization_{.mean = {0.5F, 0.4F, 0.3F}, .stddev = {0.2F, 0.25F, 0.3F}};
};

/// Collects a reader's problems in a list instead of throwing an error.
inline OnProblem collect_into(std::vector<std::string>& problems) {
  return [&](const std::string& message) { problems.push_back(message); };
}

/// The parts that `text` does not contain, followed by the text; empty if it contains all of them.
inline std::string lacks(const std::string& text, const std::vector<std::string>& parts) {
  std::string missing;
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos) missing += "'" + part + "' ";
  return missing.empty() ? missing : missing + "is not in: " + text;
}
#define CHECK_SAYS(text, ...) CHECK(lacks(text, {__VA_ARGS__}) == "")

/// Where texts are not as many as `parts`, or lack theirs; empty if all contain their parts.
inline std::string lacks(const std::vector<std::string>& texts,
                         const std::vector<std::vector<std::string>>& parts) {
  std::string missing;
  for (size_t i = 0; i < std::max(texts.size(), parts.size()); ++i)
    if (i >= parts.size())
      missing += "not expected: " + texts[i] + "\n";
    else
      missing += lacks(i < texts.size() ? texts[i] : "", parts[i]);
  return missing;
}

}  // namespace sdp::testing
