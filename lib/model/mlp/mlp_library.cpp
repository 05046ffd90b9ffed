#include <ATen/core/Tensor.h>

#include "model/library_format.h"
#include "model/mlp/mlp_spec.h"

namespace sdp {

std::unique_ptr<LibraryFormat> library_format(const MlpSpec&) {
  return nullptr;
}

LibraryConstants library_constants(const MlpSpec&, const ModelLayout&) {
  return {};
}

}  // namespace sdp
