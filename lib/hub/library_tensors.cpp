#include "hub/library_tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "model/swin/swin.h"

namespace sdp {

std::map<std::string, at::Tensor> library_tensors(const ModelSpec& spec, const ModelLayout& layout,
                                                  int64_t batch_norm_updates) {
  constexpr std::string_view kRunningMean = ".running_mean";
  constexpr std::string_view kBiasTable = "relative_position_bias_table";
  const auto stem = [](const std::string& name, std::string_view end) {
    return name.substr(0, name.size() - end.size());
  };
  std::map<std::string, at::Tensor> tensors;
  for (const BufferLayout& buffer : layout.buffers)
    if (buffer.name.ends_with(kRunningMean))
      tensors[fmt::format("{}.num_batches_tracked", stem(buffer.name, kRunningMean))] =
          at::full({}, batch_norm_updates, at::kLong);
  for (const ParameterLayout& parameter : layout.parameters)
    if (parameter.name.ends_with(kBiasTable))
      tensors[fmt::format("{}relative_position_index", stem(parameter.name, kBiasTable))] =
          relative_position_index(*spec.window_size);
  return tensors;
}

}  // namespace sdp
