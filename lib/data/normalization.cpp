#include "data/normalization.h"

#include <stdexcept>

namespace sdp {

const Normalization& normalization_of(DatasetName name) {
  static const Normalization cifar10{.mean = {0.4914F, 0.4822F, 0.4465F},
                                     .stddev = {0.2470F, 0.2435F, 0.2616F}};
  static const Normalization cifar100{.mean = {0.5071F, 0.4865F, 0.4409F},
                                      .stddev = {0.2673F, 0.2564F, 0.2762F}};
  static const Normalization svhn{.mean = {0.4377F, 0.4438F, 0.4728F}, .stddev = {0.1980F, 0.2010F, 0.1970F}};
  static const Normalization imagenet{.mean = {0.485F, 0.456F, 0.406F}, .stddev = {0.229F, 0.224F, 0.225F}};
  switch (name) {
    case DatasetName::kCifar10:
      return cifar10;
    case DatasetName::kCifar100:
      return cifar100;
    case DatasetName::kSvhn:
      return svhn;
    case DatasetName::kImageNet:
      return imagenet;
    case DatasetName::kTokens:
      break;
  }
  throw std::logic_error("tokens have no normalization");
}

}  // namespace sdp
