#include "train/tensor_file.h"

#include <ATen/ATen.h>

namespace sdp {

void TensorFile::add(const std::string& name, DType type, std::vector<int64_t> shape,
                     std::function<at::Tensor()> source) {
  entries_.push_back({name, type, std::move(shape)});
  sources_[name] = std::move(source);
}

FileDigest TensorFile::write(const std::filesystem::path& path, const TensorMetadata& metadata) {
  sort_for_writing(entries_);
  SafetensorsWriter writer(path, entries_, metadata);
  for (const TensorEntry& entry : entries_) {
    const at::Tensor host = sources_.at(entry.name)().to(at::kCPU).contiguous();
    writer.write(std::span(static_cast<const std::byte*>(host.data_ptr()), host.nbytes()));
  }
  return writer.finish();
}

}  // namespace sdp
