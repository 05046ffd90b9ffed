#pragma once

// The data sets: an include and a line each. What a data set is, data/sets/set_row.h says.

#include "data/sets/cifar.h"
#include "data/sets/imagenet_spec.h"
#include "data/sets/svhn.h"
#include "data/sets/tokens_spec.h"
#include "spec/one_of.h"

namespace sdp {

using DataSetKind = OneOf<Cifar10Spec,   //
                          Cifar100Spec,  //
                          SvhnSpec,      //
                          ImageNetSpec,  //
                          TokensSpec>;

}  // namespace sdp
