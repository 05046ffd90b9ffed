#include "data/sets/check.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "data/sets/image_array.h"
#include "data/sets/imagenet.h"
#include "data/sets/tokens.h"
#include "spec/error.h"

namespace sdp {

namespace {

/// Appends what it is told to `problems`, which must outlive it.
OnProblem collect_in(std::vector<std::string>& problems) {
  return [&problems](const std::string& problem) { problems.push_back(problem); };
}

/// Runs `check`; what ends it is a problem.
void run_to_first_error(std::vector<std::string>& problems, const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
}

void count(SplitReport& report, int64_t label, std::pair<int64_t, int64_t> size) {
  ++report.samples;
  ++report.images_of_class.at(static_cast<size_t>(label));
  ++report.images_of_size[size];
}

void check_array(SplitReport& report, const DataSpec& spec, const ModelSpec& model, Split split) {
  run_to_first_error(report.problems, [&] {
    const ArrayDataset images(read_image_array(spec, split, collect_in(report.problems)));
    report.images_of_class.resize(static_cast<size_t>(images.num_classes()));
    for (int64_t i = 0; i < images.size(); ++i)
      count(report, images.label(i), {images.shape().height, images.shape().width});
    images.check_fits(model);
  });
}

/// What was found of one image.
struct ImageFinding {
  std::optional<ImageShape> shape;
  std::vector<std::string> problems;
};

/// Images begin..end-1, decoded by several threads.
std::vector<ImageFinding> decode(const ImageNet& images, int64_t begin, int64_t end, int64_t threads) {
  std::vector<ImageFinding> findings(static_cast<size_t>(end - begin));
  std::atomic<int64_t> next = begin;
  const auto work = [&] {
    for (int64_t index = next++; index < end; index = next++) {
      ImageFinding& finding = findings[static_cast<size_t>(index - begin)];
      finding.shape = images.check_image(index, collect_in(finding.problems));
    }
  };
  std::vector<std::jthread> pool;
  for (int64_t thread = 0; thread < threads; ++thread)
    pool.emplace_back(work);
  return findings;
}

void check_imagenet(SplitReport& report, const DataSpec& spec, const ModelSpec& model, Split split,
                    int64_t threads, const OnProgress& on_progress) {
  constexpr int64_t kImagesAtATime = 4096;
  run_to_first_error(report.problems, [&] {
    const std::unique_ptr<ImageNet> images = open_imagenet(spec, model, split, collect_in(report.problems));
    report.images_of_class.resize(static_cast<size_t>(images->num_classes()));
    for (int64_t begin = 0; begin < images->size(); begin += kImagesAtATime) {
      const int64_t end = std::min(begin + kImagesAtATime, images->size());
      const std::vector<ImageFinding> findings = decode(*images, begin, end, threads);
      for (int64_t index = begin; index < end; ++index) {
        const ImageFinding& finding = findings[static_cast<size_t>(index - begin)];
        report.problems.insert(report.problems.end(), finding.problems.begin(), finding.problems.end());
        if (finding.shape) count(report, images->label(index), {finding.shape->height, finding.shape->width});
      }
      on_progress(end, images->size());
    }
    images->check_fits(model);
    report.note = images->note();
  });
}

void check_tokens(SplitReport& report, const DataSpec& spec, const ModelSpec& model, Split split,
                  const OnProgress& on_progress) {
  run_to_first_error(report.problems, [&] {
    report.shards = scan_tokens(spec, split, model.vocab_size(), collect_in(report.problems), on_progress);
    for (const TokenScan& shard : report.shards)
      report.samples += std::max<int64_t>(shard.tokens - 1, 0) / spec.sequence_length;
    if (report.samples == 0 && report.problems.empty())
      report.problems.emplace_back("no shard is longer than data.sequence_length; lower it.");
  });
}

}  // namespace

SplitReport check_split(const DataSpec& spec, const ModelSpec& model, Split split, int64_t threads,
                        const OnProgress& on_progress) {
  SplitReport report{.split = split};
  switch (spec.name) {
    case DatasetName::kCifar10:
    case DatasetName::kCifar100:
    case DatasetName::kSvhn:
      check_array(report, spec, model, split);
      break;
    case DatasetName::kImageNet:
      check_imagenet(report, spec, model, split, threads, on_progress);
      break;
    case DatasetName::kTokens:
      check_tokens(report, spec, model, split, on_progress);
      break;
  }
  return report;
}

}  // namespace sdp
