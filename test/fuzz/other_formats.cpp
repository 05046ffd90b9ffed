#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "data/image_index.h"
#include "data/tokens.h"
#include "formats.h"
#include "io/file.h"
#include "io/safetensors.h"

namespace sdp::fuzz {
namespace {

namespace fs = std::filesystem;
using namespace sdp::testing;

std::vector<std::string> safetensors_seeds() {
  const std::string data = "0123456789abcdefghijklmn";
  return {safetensors_bytes(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", data),
          safetensors_bytes(R"({"__metadata__":{"format":"pt","step":"12"},)"
                            R"("b.weight":{"dtype":"BF16","shape":[1,2,2],"data_offsets":[16,24]},)"
                            R"("s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                            R"("t":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},)"
                            R"("m":{"dtype":"BOOL","shape":[0,7],"data_offsets":[24,24]}}  )",
                            data)};
}

void read_safetensors(const fs::path& path) {
  const SafetensorsFile file(path);
  for (const TensorView& tensor : file.entries()) {
    require(static_cast<int64_t>(tensor.data.size()) == tensor.entry.bytes(),
            "data of another size than the shape");
    require(file.find(tensor.entry.name) == &tensor, "a tensor that is not found by its name");
    use(tensor.data);
  }
}

// ---- the saved list of images ----

constexpr int64_t kClasses = 10;

/// The file clock's epoch is in 2174; recently changed files would be listed again.
constexpr int64_t kLongAgo = -8'000'000'000'000'000'000;

/// The current state of a data set.
struct Listed {
  std::string contents;
  std::vector<ImageGroup> groups;
};

/// Of class folders, and of shards.
std::vector<Listed> data_sets() {
  return {{"class folders cat/dog", {{"cat", 0, kLongAgo + 1}, {"dog", 0, kLongAgo + 2}}},
          {"shards of 10 classes",
           {{"train-0.tar", 9216, kLongAgo + 3},
            {"train-1.tar", 10240, kLongAgo + 4},
            {"train-2.tar", 5120, kLongAgo + 5}}}};
}

/// Adds three images, whose names and labels depend on the group.
void list_group(const ImageGroup& group, ImageIndex& index) {
  for (int64_t image = 0; image < 3; ++image) {
    const std::string name = group.name + std::string(static_cast<size_t>(image), 'x') + ".jpg";
    const int64_t label = group.changed_ns - kLongAgo + image;
    const TarEntry member{
        .name = name, .offset_bytes = 2048 * image, .data_offset_bytes = 2048 * image + 512, .size_bytes = 7};
    group.size_bytes > 0 ? index.add_member(member, label) : index.add_file(name, label);
  }
}

ImageIndex list_all(const Listed& listed) {
  ImageIndex index;
  for (const ImageGroup& group : listed.groups) {
    index.begin_group(group);
    list_group(group, index);
  }
  return index;
}

std::vector<std::string> index_seeds() {
  std::vector<Listed> saved = data_sets();
  saved.push_back(saved[1]);
  saved[2].groups[1].changed_ns = kLongAgo;  // of older shards
  std::vector<std::string> files;
  for (const Listed& listed : saved) {
    const TempFolder folder;
    IndexFile(folder / "train.sdp-index", listed.contents, kClasses).save(list_all(listed));
    files.push_back(read_text(folder / "train.sdp-index"));
  }
  return files;
}

/// Calls everything that the rest of the program uses. An index with wrong contents must still be consistent.
void look_at(const ImageIndex& index) {
  for (int64_t image = 0; image < index.size(); ++image) {
    require(index.group(image) < index.groups().size(), "an image outside of the groups");
    use(std::as_bytes(std::span(index.name(image))));
    require(index.label(image) >= 0 && index.label(image) < kClasses, "a label beyond the classes");
    const int64_t group_bytes = index.groups()[index.group(image)].size_bytes;
    if (group_bytes <= 0) continue;
    const TarEntry member = index.member(image);
    require(member.offset_bytes >= 0 && member.data_offset_bytes >= member.offset_bytes &&
                member.data_offset_bytes + member.size_bytes <= group_bytes,
            "no place in the file");
  }
}

/// The index of a data set; `used`: part of it comes from the saved one. It is not saved again.
ImageIndex update(const fs::path& file, const Listed& listed, bool& used) {
  size_t groups = 0;
  std::string note;
  const auto list = [&](const ImageGroup& group, ImageIndex& index) {
    list_group(group, index);
    ++groups;
    return false;  // reports a problem, so that nothing is saved
  };
  ImageIndex index = update_index(IndexFile(file, listed.contents, kClasses), listed.groups, list, note);
  used |= groups < listed.groups.size();
  return index;
}

/// A damaged index is rebuilt; whether it is used or not, the list is the same as without an index.
void read_index(const fs::path& file) {
  bool used = false;
  for (const Listed& listed : data_sets())
    require(update(file, listed, used) == list_all(listed), "a damaged index is believed");
  if (!used) throw DataError("made anew");
}

std::string repair_index(std::string bytes) {
  constexpr size_t kMagicBytes = 8;
  constexpr size_t kFrameBytes = kMagicBytes + sizeof(uint64_t);
  if (bytes.size() < kFrameBytes) return bytes;
  const uint64_t hash = XXH3_64bits(bytes.data() + kFrameBytes, bytes.size() - kFrameBytes);
  std::memcpy(bytes.data() + kMagicBytes, &hash, sizeof hash);
  return bytes;
}

/// An index with a corrected checksum may have other contents, but must not cause reads outside of it.
void read_forged_index(const fs::path& file) {
  bool used = false, is_updated = false;
  for (const Listed& listed : data_sets()) {
    if (const std::optional<ImageIndex> index = IndexFile(file, listed.contents, kClasses).load()) {
      look_at(*index);
      used = true;
    }
    look_at(update(file, listed, is_updated));
  }
  if (!used) throw DataError("not an index");
}

// ---- tokens ----

constexpr int64_t kSequenceLength = 8;

std::vector<std::string> token_seeds() {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < 100; ++i)
    tokens.push_back(static_cast<uint16_t>(i * 502));
  return {token_shard(tokens), token_shard({1, 2, 3, 4, 5, 6, 7, 8, 9})};
}

std::vector<std::string> wide_token_seeds() {
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 100; ++i)
    tokens.push_back(i * 1282);
  return {wide_token_shard(tokens), wide_token_shard({1, 2, 3, 4, 5, 6, 7, 8, 128'255})};
}

/// The tokens after the header, read byte by byte.
std::vector<int64_t> tokens_of(std::span<const uint8_t> file, int64_t token_bytes) {
  std::vector<int64_t> tokens;
  const auto width = static_cast<size_t>(token_bytes);
  for (size_t at = 1024; width > 0 && at + width <= file.size(); at += width) {
    int64_t token = 0;
    for (size_t byte = 0; byte < width; ++byte)
      token |= int64_t{file[at + byte]} << (8 * byte);
    tokens.push_back(token);
  }
  return tokens;
}

/// Every sample has its tokens, or is refused because of one that is not in the vocabulary.
void check_samples(const TokenDataset& dataset, int64_t vocab_size, std::span<const int64_t> tokens) {
  require(dataset.size() == (static_cast<int64_t>(tokens.size()) - 1) / kSequenceLength,
          "another number of samples than fit into the shard");
  for (int64_t index = 0; index < dataset.size(); ++index) {
    const auto window = tokens.subspan(static_cast<size_t>(index * kSequenceLength), kSequenceLength + 1);
    Buffer<int64_t> sample = {-1};
    const bool refused = !message_of<DataError>([&] { dataset.append_sample(index, sample); }).empty();
    require(refused == (std::ranges::max(window) >= vocab_size),
            "a sample is refused though its tokens are in the vocabulary, or is not");
    require(refused || (sample.front() == -1 && std::ranges::equal(std::span(sample).subspan(1), window)),
            "a sample has other tokens than the shard");
  }
}

void check_scan(const TokenScan& scan, int64_t vocab_size, std::span<const int64_t> tokens) {
  require(scan.tokens == static_cast<int64_t>(tokens.size()), "a scan counts other tokens");
  if (tokens.empty()) return;
  const auto is_beyond = [&](int64_t token) { return token >= vocab_size; };
  require(scan.largest == std::ranges::max(tokens) && scan.smallest == std::ranges::min(tokens),
          "a scan finds another range of tokens");
  require(scan.beyond_vocab == std::ranges::count_if(tokens, is_beyond) &&
              scan.first_beyond_vocab.value_or(scan.tokens) ==
                  std::ranges::find_if(tokens, is_beyond) - tokens.begin(),
          "a scan finds other tokens beyond the vocabulary");
}

/// `data check` and training have the same findings, except that training needs a complete sample. The first
/// problem is thrown.
template <int64_t vocab_size>
void read_tokens(const fs::path& file) {
  const DataSpec spec = tokens_in(file.parent_path(), kSequenceLength);
  std::vector<std::string> problems;
  const TokenScan scan = scan_tokens(spec, Split::kTest, vocab_size, collect_into(problems)).at(0);
  const std::vector<int64_t> tokens = tokens_of(read_bytes(file), scan.token_bytes);
  check_scan(scan, vocab_size, tokens);

  const bool damaged = problems.size() > (scan.beyond_vocab > 0 ? 1 : 0);
  const bool is_short = scan.tokens <= kSequenceLength;
  std::optional<TokenDataset> dataset;
  const std::string refused = message_of<DataError>([&] { dataset.emplace(spec, Split::kTest, vocab_size); });
  require(refused.empty() == !(damaged || is_short), "opening and scanning find something else");
  require(!damaged || refused == problems.front(), "opening names another problem than scanning");
  if (!refused.empty()) throw DataError(refused);

  check_samples(*dataset, vocab_size, tokens);
  constexpr int64_t kBeyondInt32 = (int64_t{1} << 31) + 5;  // compared in another way
  check_samples(TokenDataset(spec, Split::kTest, kBeyondInt32), kBeyondInt32, tokens);
  const TokenDataset::Place largest = dataset->largest_token(scan.tokens);
  require(largest.token == scan.largest && tokens.at(static_cast<size_t>(largest.position)) == largest.token,
          "the largest token is not where it is said to be");
  const ModelSpec model{.kind = LlamaSpec{.vocab_size = vocab_size}};
  const std::string does_not_fit = message_of<UsageError>([&] { dataset->check_fits(model); });
  require(does_not_fit.empty() == (scan.beyond_vocab == 0),
          "a vocabulary that is too small fits, or one that is not does not");
  if (!does_not_fit.empty()) throw UsageError(does_not_fit);
}

}  // namespace

std::string repair_safetensors(std::string bytes) {
  const size_t end = bytes.rfind('}');
  if (end == std::string::npos || end < 8) return bytes;
  for (size_t byte = 0; byte < 8; ++byte)
    bytes[byte] = static_cast<char>((end + 1 - 8) >> (8 * byte));
  return bytes;
}

std::vector<Format> other_formats() {
  // In the first index: checksum, length of the contents, number of groups, length of the first group's name.
  const std::vector<size_t> index_fields = {8, 16, 45, 53};
  const std::vector<size_t> token_fields = {0, 4, 8};  // magic number, version, number of tokens
  const char* const index = "train.sdp-index";
  return {
      {"safetensors", "model.safetensors", 320, {0}, safetensors_seeds, read_safetensors, repair_safetensors},
      {"image_index", index, 90, index_fields, index_seeds, read_index},
      {"image_index_forged", index, 90, index_fields, index_seeds, read_forged_index, repair_index},
      {"tokens", "val.bin", 16, token_fields, token_seeds, read_tokens<50257>},
      {"tokens_32_bit", "val.bin", 16, token_fields, wide_token_seeds, read_tokens<128256>}};
}

}  // namespace sdp::fuzz
