#pragma once

// The list of data sets: each needs an include and an entry. data/sets/set_row.h describes what a data set
// provides.

#include "data/sets/imagenet_spec.h"
#include "data/sets/small_images.h"
#include "data/sets/tokens_spec.h"
#include "spec/one_of.h"

namespace sdp {

using DataSetKind = OneOf<Cifar10Spec,       //
                          Cifar100Spec,      //
                          SvhnSpec,          //
                          MnistSpec,         //
                          FashionMnistSpec,  //
                          ImageNetSpec,      //
                          TokensSpec>;

}  // namespace sdp
