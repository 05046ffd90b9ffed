#include "data/dataset.h"

#include <fmt/format.h>

#include "data/held_out.h"
#include "data/sets/array_files.h"
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
  const bool holds_out = spec.validation_share > 0;
  const Split from = holds_out ? Split::kTrain : split;
  std::unique_ptr<Dataset> dataset =
      spec.set.visit([&]<class Set>(const Set& set) -> std::unique_ptr<Dataset> {
        if constexpr (Set::kind == DataKind::kHeldImages) {
          ImageArray images = read_set(set, spec, from, throw_problem);
          images.normalization = spec.pixel_normalization().value();
          return std::make_unique<ArrayDataset>(std::move(images));
        } else {
          return open_set(set, spec, model, from, on_progress);
        }
      });
  dataset->check_fits(model, on_progress);
  if (!holds_out) return dataset;
  std::vector<int64_t> samples = samples_of_side(dataset->size(), spec.validation_share, split);
  return subset_of(std::move(dataset), std::move(samples));
}

}  // namespace sdp
