#pragma once

// The batches of a run on their way to the device.

#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "data/data_spec.h"
#include "data/pipeline/loader.h"
#include "feed/batch.h"
#include "subnet/element_type.h"

namespace sdp {

/// Returns batches one after another, in the requested order. For use by one thread.
class Feed {
 public:
  virtual ~Feed() = default;
  /// The next batch, ready for use in the current stream. Rethrows errors from reading it; throws
  /// std::logic_error if none is left.
  virtual TensorBatch next() = 0;
  /// Total time that next() has waited for data.
  virtual double wait_ms() const = 0;
};

class ResidentImages;

/// A data set, and how its batches get to the device (data.location): through threads that read and augment
/// ahead, or, for images held in memory, with all images on the device and augmentation there, with the same
/// random choices and results.
class FeedSource {
 public:
  /// Copies the images to the device if they are to be kept there. The data set must outlive the source.
  FeedSource(const Dataset& dataset, const DataSpec& spec, Precision precision, at::Device device);
  ~FeedSource();

  int64_t size() const { return dataset_.size(); }
  DataIdentity identity() const { return dataset_.identity(); }
  bool is_resident() const { return resident_ != nullptr; }

  /// The source must outlive its feeds.
  std::unique_ptr<Feed> training(const TrainingBatches& batches) const;
  std::unique_ptr<Feed> evaluation(const EvalBatches& batches) const;

 private:
  std::unique_ptr<Feed> feed_of(std::unique_ptr<BatchLoader> loader) const;

  const Dataset& dataset_;
  LoaderThreads threads_;
  Precision precision_;
  at::Device device_;
  std::optional<c10::Stream> copy_stream_;
  std::unique_ptr<ResidentImages> resident_;
};

/// Limit on the device memory for images under data.location: auto.
inline constexpr int64_t kMostResidentBytes = int64_t{1} << 30;

/// Whether the data set is kept on the device: if data.location is device, or auto on CUDA. Never for a data
/// set that is not held in memory as a whole (data/sets/image_array.h).
bool is_kept_on_device(const Dataset& dataset, DataLocation location, at::Device device);

}  // namespace sdp
