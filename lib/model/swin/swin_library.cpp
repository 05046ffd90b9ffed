#include <ATen/core/Tensor.h>

#include "model/swin/swin_spec.h"
#include "model/window_attention.h"
#include "subnet/layout.h"

namespace sdp {

/// torchvision stores the relative position indices next to each bias table.
LibraryConstants library_constants(const SwinSpec& spec, const ModelLayout& layout) {
  constexpr std::string_view kBiasTable = "relative_position_bias_table";
  LibraryConstants constants;
  for (const ParameterLayout& parameter : layout.parameters)
    if (parameter.name.ends_with(kBiasTable))
      constants[parameter.name.substr(0, parameter.name.size() - kBiasTable.size()) +
                "relative_position_index"] = relative_position_index(*spec.window_size);
  return constants;
}

}  // namespace sdp
