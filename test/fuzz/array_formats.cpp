#include <algorithm>
#include <array>
#include <cstdint>

#include "data/image_array.h"
#include "fixtures.h"
#include "formats.h"
#include "oracle.h"
#include "safetensors_repair.h"
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

// ---- CIFAR-10 as tar shards ----

std::vector<std::string> tar_seeds() {
  const std::string jpeg = flat_jpeg(32, 32, {200, 100, 50});
  const std::string gray = flat_jpeg(32, 32, {77});
  return {TarWriter().add("a.jpg", jpeg).add("a.cls", "7\n").add("b.cls", "0").add("b.jpg", gray).finish(),
          TarWriter().add("dir/", "", '5').add("3/a.jpg", gray).add("9/b.jpeg", jpeg).finish(),
          TarWriter()
              .add("PaxHeader", "19 path=5/long.jpg\n", 'x')
              .add("short", jpeg)
              .add("././@LongLink", std::string("4/") + std::string(120, 'n') + ".jpg", 'L')
              .add("cut", gray)
              .finish()};
}

constexpr std::array<size_t, 1> kLengthField = {0};  // of the header

}  // namespace

std::vector<Format> array_formats() {
  return {
      {"image_arrays",
       "val.safetensors",
       {320, kLengthField},
       array_seeds,
       read_images<MnistSpec>,
       repair_safetensors},
      {"cifar10_shard",
       "test-000000.tar",
       {512, kTarFields},
       tar_seeds,
       read_images<Cifar10Spec>,
       repair_tar},
  };
}

}  // namespace sdp::fuzz
