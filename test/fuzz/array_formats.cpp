#include <algorithm>
#include <array>
#include <cstdint>

#include "data/image_array.h"
#include "fixtures.h"
#include "formats.h"
#include "io/safetensors.h"
#include "oracle.h"
#include "tar_repair.h"

namespace sdp::fuzz {

namespace {

namespace fs = std::filesystem;
using namespace sdp::testing;

void look_at(const ImageArray& images) {
  require(images.pixels.size() == images.labels.size() * static_cast<size_t>(images.shape.numel()),
          "pixels and labels of a different number of images");
  require(std::all_of(images.labels.begin(), images.labels.end(),
                      [&](uint8_t label) { return label < images.num_classes; }),
          "a label outside the classes");
  use(std::as_bytes(std::span(images.pixels)));
}

template <class Set>
void read_images(const fs::path& file) {
  const Set set;
  const DataSpec spec{.set = set, .path = file.parent_path().string()};
  read_with_and_without_problems(
      [&](const OnProblem& on_problem) { return read_set(set, spec, Split::kTest, on_problem); }, look_at);
}

/// Without the byte '}', which repair_safetensors looks for.
std::vector<std::string> array_seeds() {
  const HeldImages& set = MnistSpec::images();
  return {array_file(set, {.pixels = std::string(784, '\1'), .labels = "\x09"}),
          array_file(set, {.pixels = std::string(784, '\2') + std::string(784, '\3'),
                           .labels = std::string("\0\4", 2)})};
}

std::vector<std::string> shard_seeds() {
  const std::string gray = flat_jpeg(32, 32, {77});
  return tar_seeds(flat_jpeg(32, 32, {200, 100, 50}), gray, gray);
}

std::vector<std::string> safetensors_seeds() {
  const std::string data = pixels_of(0, 24);
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

/// Sets the header's length so that the header ends with the last brace.
std::string repair_safetensors(std::string bytes) {
  const size_t end = bytes.rfind('}');
  if (end == std::string::npos || end < 8) return bytes;
  for (size_t byte = 0; byte < 8; ++byte)
    bytes[byte] = static_cast<char>((end + 1 - 8) >> (8 * byte));
  return bytes;
}

constexpr std::array<size_t, 1> kLengthField = {0};  // of the header

}  // namespace

std::vector<Format> array_formats() {
  const Targets header{320, kLengthField};
  return {
      {"image_arrays", "val.safetensors", header, array_seeds, read_images<MnistSpec>, repair_safetensors},
      {"safetensors", "model.safetensors", header, safetensors_seeds, read_safetensors, repair_safetensors},
      {"cifar10_shard",
       "test-000000.tar",
       {512, kTarFields},
       shard_seeds,
       read_images<Cifar10Spec>,
       repair_tar},
  };
}

}  // namespace sdp::fuzz
