#pragma once

// The models, one per line. model/model_row.h describes what a model consists of.

#include "model/gpt2/gpt2_spec.h"
#include "model/llama/llama_spec.h"
#include "model/mlp/mlp_spec.h"
#include "model/own/own_spec.h"
#include "model/resnet/resnet_spec.h"
#include "model/resnet50/resnet50_spec.h"
#include "model/swin/swin_spec.h"
#include "model/vit/vit_spec.h"
#include "spec/one_of.h"

namespace sdp {

using ModelKind = OneOf<ResNetSpec,    //
                        ResNet50Spec,  //
                        SwinSpec,      //
                        VitSpec,       //
                        LlamaSpec,     //
                        Gpt2Spec,      //
                        MlpSpec,       //
                        OwnSpec>;

}  // namespace sdp
