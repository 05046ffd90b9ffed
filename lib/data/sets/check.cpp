#include "data/sets/check.h"

#include "data/sets/image_array.h"
#include "spec/error.h"

namespace sdp {
namespace {

template <class Set>
void check_held(const Set& set, const DataSpec& spec, const ModelSpec& model, SplitReport& report) {
  report.run_to_first_error([&] {
    const ArrayDataset images(read_set(set, spec, report.split, report.collect()));
    report.images_of_class.resize(static_cast<size_t>(images.num_classes()));
    for (int64_t i = 0; i < images.size(); ++i)
      report.count(images.label(i), {images.shape().height, images.shape().width});
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

void SplitReport::count(int64_t label, std::pair<int64_t, int64_t> size) {
  ++samples;
  ++images_of_class.at(static_cast<size_t>(label));
  ++images_of_size[size];
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
