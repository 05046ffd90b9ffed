#include <ATen/core/Tensor.h>

#include "model/library_format.h"
#include "model/resnet50/resnet50_spec.h"

namespace sdp {

std::unique_ptr<LibraryFormat> library_format(const ResNet50Spec&) {
  return nullptr;
}

LibraryConstants library_constants(const ResNet50Spec&, const ModelLayout&) {
  return {};
}

}  // namespace sdp
