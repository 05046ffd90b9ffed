#include "data/check.h"

#include <algorithm>
#include <cmath>

#include "data/image_array.h"
#include "spec/error.h"

namespace sdp {
namespace {

template <class Set>
void check_held(const Set& set, const DataSpec& spec, const ModelSpec& model, SplitReport& report) {
  report.run_to_first_error([&] {
    const ArrayDataset images(read_set(set, spec, report.split, report.collect()));
    report.images_of_class.resize(static_cast<size_t>(images.num_classes()));
    const ImageShape& shape = images.shape();
    const int64_t pixels = shape.height * shape.width;
    for (int64_t i = 0; i < images.size(); ++i)
      report.count(
          images.label(i), shape, PixelMeans::of(shape.channels, pixels, [&](int64_t channel, int64_t at) {
            return images.array().pixels[static_cast<size_t>((i * shape.channels + channel) * pixels + at)];
          }));
    images.check_fits(model);
  });
}

}  // namespace

OnProblem SplitReport::collect() {
  return [this](const std::string& problem) { problems.push_back(problem); };
}

void SplitReport::run_to_first_error(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
}

void SplitReport::count(int64_t label, const ImageShape& shape, const PixelMeans& means) {
  ++samples;
  ++images_of_class.at(static_cast<size_t>(label));
  ++images_of_size[{shape.height, shape.width}];
  sum_of_means.value.resize(means.value.size());
  sum_of_means.square.resize(means.value.size());
  for (size_t channel = 0; channel < means.value.size(); ++channel) {
    sum_of_means.value[channel] += means.value[channel];
    sum_of_means.square[channel] += means.square[channel];
  }
}

Normalization SplitReport::normalization() const {
  Normalization measured;
  for (size_t channel = 0; channel < sum_of_means.value.size(); ++channel) {
    const double mean = sum_of_means.value[channel] / static_cast<double>(samples);
    const double square = sum_of_means.square[channel] / static_cast<double>(samples);
    measured.mean.push_back(mean);
    measured.stddev.push_back(std::sqrt(std::max(square - mean * mean, 0.0)));
  }
  return measured;
}

SplitReport check_split(const DataSpec& spec, const ModelSpec& model, Split split, int64_t threads,
                        const OnProgress& on_progress) {
  SplitReport report{.split = split};
  spec.set.visit([&]<class Set>(const Set& set) {
    if constexpr (Set::kind == DataKind::kHeldImages) {
      check_held(set, spec, model, report);
    } else {
      check_set(set, spec, model, threads, report, on_progress);
    }
  });
  return report;
}

}  // namespace sdp
