#include "model/layouts.h"

#include "spec/model_defaults.h"

namespace sdp {

ModelLayout layout_of(const ModelSpec& spec, int64_t sequence_length) {
  if (spec.name == ModelName::kMlp) return mlp_layout(spec);
  if (spec.name == ModelName::kSwinT) return swin_layout(spec);
  if (is_llama(spec.name)) return llama_layout(spec, sequence_length);
  return resnet_layout(spec);
}

}  // namespace sdp
