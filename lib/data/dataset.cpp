#include "data/dataset.h"

#include <fmt/format.h>

#include <stdexcept>

#include "data/sets/image_array.h"
#include "data/sets/imagenet.h"
#include "data/sets/tokens.h"
#include "spec/error.h"

namespace sdp {

namespace {

std::unique_ptr<Dataset> open_unchecked(const DataSpec& spec, const ModelSpec& model, Split split,
                                        const OnProgress& on_progress) {
  if (spec.path.empty())
    throw UsageError(fmt::format("data.path is not set. Expected the folder that holds the data set {}.",
                                 name_of(spec.name)));
  switch (spec.name) {
    case DatasetName::kCifar10:
    case DatasetName::kCifar100:
    case DatasetName::kSvhn:
      return std::make_unique<ArrayDataset>(read_image_array(spec, split, throw_problem));
    case DatasetName::kImageNet:
      return open_imagenet(spec, model, split, throw_problem, on_progress);
    case DatasetName::kTokens:
      return std::make_unique<TokenDataset>(spec, split, model.vocab_size());
  }
  throw std::logic_error("open_dataset: no such data set");
}

}  // namespace

void throw_problem(const std::string& message) {
  throw DataError(message);
}

std::unique_ptr<Dataset> open_dataset(const DataSpec& spec, const ModelSpec& model, Split split,
                                      const OnProgress& on_progress) {
  std::unique_ptr<Dataset> dataset = open_unchecked(spec, model, split, on_progress);
  dataset->check_fits(model, on_progress);
  return dataset;
}

}  // namespace sdp
