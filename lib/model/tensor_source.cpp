#include "model/tensor_source.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <xxhash.h>

#include <stdexcept>

namespace sdp {

at::ScalarType scalar_type(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return at::kDouble;
    case ElementType::kF32:
      return at::kFloat;
    case ElementType::kBf16:
      return at::kBFloat16;
  }
  throw std::logic_error("unknown element type");
}

at::Tensor draw_parameter(const ParameterLayout& parameter, uint64_t seed) {
  at::Tensor values = at::empty(parameter.shape, at::kFloat);
  const uint64_t own_seed = XXH3_64bits_withSeed(parameter.name.data(), parameter.name.size(), seed);
  at::Generator generator = at::detail::createCPUGenerator(own_seed);
  switch (parameter.init.kind) {
    case Initializer::Kind::kConstant:
      return values.fill_(parameter.init.scale);
    case Initializer::Kind::kNormal:
      return values.normal_(0, parameter.init.scale, generator);
    case Initializer::Kind::kUniform:
      return values.uniform_(-parameter.init.scale, parameter.init.scale, generator);
  }
  throw std::logic_error("unknown initializer");
}

}  // namespace sdp
