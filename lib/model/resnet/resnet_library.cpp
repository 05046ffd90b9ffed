#include <ATen/core/Tensor.h>

#include "model/library_format.h"
#include "model/resnet/resnet_spec.h"

namespace sdp {

std::unique_ptr<LibraryFormat> library_format(const ResNetSpec&) {
  return nullptr;
}

LibraryConstants library_constants(const ResNetSpec&, const ModelLayout&) {
  return {};
}

}  // namespace sdp
