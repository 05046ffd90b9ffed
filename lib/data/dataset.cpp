#include "data/dataset.h"

#include <stdexcept>

#include "data/cifar10.h"
#include "spec/error.h"

namespace sdp {

std::unique_ptr<ImageDataset> open_dataset(const DataSpec& spec, Split split) {
  if (spec.path.empty())
    throw UsageError("data.path is not set. Expected the folder that holds the data set " +
                     std::string(name_of(spec.name)) + ".");
  switch (spec.name) {
    case DatasetName::kCifar10:
      return open_cifar10(spec.path, split);
  }
  throw std::logic_error("open_dataset: unknown data set");
}

}  // namespace sdp
