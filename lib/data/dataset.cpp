#include "data/dataset.h"

#include <fmt/format.h>

#include "data/cifar10.h"
#include "data/tokens.h"
#include "spec/error.h"

namespace sdp {

namespace {

std::unique_ptr<Dataset> open_unchecked(const DataSpec& spec, Split split) {
  if (spec.path.empty())
    throw UsageError(fmt::format("data.path is not set. Expected the folder that holds the data set {}.",
                                 name_of(spec.name)));
  switch (spec.name) {
    case DatasetName::kCifar10:
      return open_cifar10(spec.path, split);
    case DatasetName::kTokens:
      return std::make_unique<TokenDataset>(spec.path, split, spec.sequence_length);
    case DatasetName::kCifar100:
    case DatasetName::kSvhn:
    case DatasetName::kImageNet:
      break;
  }
  throw UsageError(
      fmt::format("data.name: {} can be planned with, but not be read by this version. Expected cifar10 or "
                  "tokens.",
                  name_of(spec.name)));
}

}  // namespace

void throw_problem(const std::string& message) {
  throw DataError(message);
}

std::unique_ptr<Dataset> open_dataset(const DataSpec& spec, const ModelSpec& model, Split split) {
  std::unique_ptr<Dataset> dataset = open_unchecked(spec, split);
  dataset->check_fits(model);
  return dataset;
}

}  // namespace sdp
