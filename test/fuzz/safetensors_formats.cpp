#include <array>
#include <cstdint>

#include "formats.h"
#include "io/safetensors.h"
#include "oracle.h"
#include "safetensors_repair.h"

namespace sdp::fuzz {

namespace {

std::string safetensors(const std::string& header, size_t data_bytes) {
  return testing::safetensors_bytes(header, pixels_of(0, data_bytes));
}

std::vector<std::string> safetensors_seeds() {
  return {safetensors(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
          safetensors(R"({"__metadata__":{"format":"pt","step":"12"},)"
                      R"("b.weight":{"dtype":"BF16","shape":[1,2,2],"data_offsets":[16,24]},)"
                      R"("s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                      R"("t":{"dtype":"F64","shape":[1],"data_offsets":[8,16]},)"
                      R"("m":{"dtype":"BOOL","shape":[0,7],"data_offsets":[24,24]}}  )",
                      24)};
}

void read_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  for (const TensorView& tensor : file.entries()) {
    require(static_cast<int64_t>(tensor.data.size()) == tensor.entry.bytes(),
            "data of another size than the shape");
    require(file.find(tensor.entry.name) == &tensor, "a tensor that is not found by its name");
    use(tensor.data);
  }
}

constexpr std::array<size_t, 1> kFields = {0};  // the header's length

}  // namespace

std::vector<Format> safetensors_formats() {
  return {{"safetensors",
           "model.safetensors",
           {320, kFields},
           safetensors_seeds,
           read_safetensors,
           repair_safetensors}};
}

}  // namespace sdp::fuzz
