#include "data/dataset.h"

#include <fmt/format.h>

#include "data/sets/image_array.h"
#include "spec/error.h"

namespace sdp {

void throw_problem(const std::string& message) {
  throw DataError(message);
}

std::unique_ptr<Dataset> open_dataset(const DataSpec& spec, const ModelSpec& model, Split split,
                                      const OnProgress& on_progress) {
  if (spec.path.empty())
    throw UsageError(
        fmt::format("data.path is not set. Expected the folder that holds the data set {}.", spec.name()));
  std::unique_ptr<Dataset> dataset =
      spec.set.visit([&]<class Set>(const Set& set) -> std::unique_ptr<Dataset> {
        if constexpr (Set::kind == DataKind::kHeldImages) {
          return std::make_unique<ArrayDataset>(read_set(set, spec, split, throw_problem));
        } else {
          return open_set(set, spec, model, split, on_progress);
        }
      });
  dataset->check_fits(model, on_progress);
  return dataset;
}

}  // namespace sdp
