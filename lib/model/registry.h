#pragma once

// The models, one per line. model/model_row.h describes what a model consists of.

#include "model/gpt2_spec.h"
#include "model/llama_spec.h"
#include "model/mlp_spec.h"
#include "model/own_spec.h"
#include "model/resnet50_spec.h"
#include "model/resnet_spec.h"
#include "model/swin_spec.h"
#include "model/vit_spec.h"
#include "spec/one_of.h"

namespace sdp {

struct ModelKinds {
  using Types = std::tuple<ResNetSpec,    //
                           ResNet50Spec,  //
                           SwinSpec,      //
                           VitSpec,       //
                           LlamaSpec,     //
                           Gpt2Spec,      //
                           MlpSpec,       //
                           OwnSpec>;
};
using ModelKind = OneOf<ModelKinds>;

}  // namespace sdp
