#include "hub/library_tensors.h"

#include <ATen/ATen.h>

#include "model/library_format.h"

namespace sdp {

LibraryConstants library_tensors(const ModelSpec& spec, const ModelLayout& layout,
                                 int64_t batch_norm_updates) {
  constexpr std::string_view kRunningMean = ".running_mean";
  LibraryConstants tensors =
      spec.kind.visit([&](const auto& model) { return library_constants(model, layout); });
  for (const BufferLayout& buffer : layout.buffers)
    if (buffer.name.ends_with(kRunningMean))
      tensors[buffer.name.substr(0, buffer.name.size() - kRunningMean.size()) + ".num_batches_tracked"] =
          at::full({}, batch_norm_updates, at::kLong);
  return tensors;
}

}  // namespace sdp
