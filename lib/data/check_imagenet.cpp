// `data check` for ImageNet: decodes every image.

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "data/check.h"
#include "data/imagenet.h"

namespace sdp {
namespace {

/// Result for one image.
struct ImageFinding {
  std::optional<ImageNet::Finding> found;
  std::vector<std::string> problems;
};

/// Images begin..end-1, decoded by several threads.
std::vector<ImageFinding> decode(const ImageNet& images, int64_t begin, int64_t end, int64_t threads) {
  std::vector<ImageFinding> findings(static_cast<size_t>(end - begin));
  std::atomic<int64_t> next = begin;
  const auto work = [&] {
    for (int64_t index = next++; index < end; index = next++) {
      ImageFinding& finding = findings[static_cast<size_t>(index - begin)];
      finding.found =
          images.check_image(index, [&](const std::string& problem) { finding.problems.push_back(problem); });
    }
  };
  std::vector<std::jthread> pool;
  for (int64_t thread = 0; thread < threads; ++thread)
    pool.emplace_back(work);
  return findings;
}

}  // namespace

void check_set(const ImageNetSpec&, const DataSpec& data, const ModelSpec& model, int64_t threads,
               SplitReport& report, const OnProgress& on_progress) {
  constexpr int64_t kImagesAtATime = 4096;
  report.run_to_first_error([&] {
    const std::unique_ptr<ImageNet> images = open_imagenet(data, model, report.split, report.collect());
    report.images_of_class.resize(static_cast<size_t>(images->num_classes()));
    for (int64_t begin = 0; begin < images->size(); begin += kImagesAtATime) {
      const int64_t end = std::min(begin + kImagesAtATime, images->size());
      const std::vector<ImageFinding> findings = decode(*images, begin, end, threads);
      for (int64_t index = begin; index < end; ++index) {
        const ImageFinding& finding = findings[static_cast<size_t>(index - begin)];
        report.problems.insert(report.problems.end(), finding.problems.begin(), finding.problems.end());
        if (finding.found) report.count(images->label(index), finding.found->shape, finding.found->means);
      }
      on_progress(end, images->size());
    }
    images->check_fits(model);
    report.note = images->note();
  });
}

}  // namespace sdp
