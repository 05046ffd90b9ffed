#pragma once

// The list of data sets: each needs an include and an entry. data/set_row.h describes what a data set
// provides.

#include "data/imagenet_spec.h"
#include "data/small_images.h"
#include "data/tokens_spec.h"
#include "spec/one_of.h"

namespace sdp {

struct DataSetKinds {
  using Types = std::tuple<Cifar10Spec,       //
                           Cifar100Spec,      //
                           SvhnSpec,          //
                           MnistSpec,         //
                           FashionMnistSpec,  //
                           ImageNetSpec,      //
                           TokensSpec>;
};
using DataSetKind = OneOf<DataSetKinds>;

}  // namespace sdp
