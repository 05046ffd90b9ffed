#include "checkpoint/tensor_file.h"

#include <ATen/ATen.h>

namespace sdp {

void TensorFile::add(const std::string& name, DType type, std::vector<int64_t> shape,
                     std::function<at::Tensor()> source) {
  entries_.push_back({name, type, std::move(shape)});
  sources_[name] = std::move(source);
}

FileDigest TensorFile::write(const std::filesystem::path& path, const TensorMetadata& metadata,
                             const OnProgress& on_progress) {
  sort_for_writing(entries_);
  SafetensorsWriter writer(path, entries_, metadata);
  int64_t total_bytes = 0;
  for (const TensorEntry& entry : entries_)
    total_bytes += entry.bytes();
  int64_t done_bytes = 0;
  for (const TensorEntry& entry : entries_) {
    const at::Tensor host = sources_.at(entry.name)().to(at::kCPU).contiguous();
    writer.write(std::span(static_cast<const std::byte*>(host.data_ptr()), host.nbytes()));
    done_bytes += entry.bytes();
    on_progress(done_bytes, total_bytes);
  }
  return writer.finish();
}

}  // namespace sdp
