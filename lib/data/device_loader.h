#pragma once

// The batches of a run: their way to the device, and as a model's input there.

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/data_spec.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "layers/loss.h"
#include "subnet/element_type.h"

namespace sdp {

/// Input and targets of a model.
struct TensorBatch {
  at::Tensor input = {};         ///< images [B, C, H, W] in the compute type, or tokens [B, T] int64
  at::Tensor labels = {};        ///< as in Targets
  at::Tensor mixed_labels = {};  ///< as in Targets
  double mix = 1;                ///< as in Targets

  std::vector<int64_t> samples = {};      ///< [B], indices in the data set
  std::vector<std::string> skipped = {};  ///< the fault of each image that was skipped

  Targets targets() const { return {.labels = labels, .mixed_labels = mixed_labels, .mix = mix}; }
};

/// On a CPU, values that need no conversion are not copied. On CUDA, they are copied through pinned memory in
/// the current stream, and the host does not wait for the copy.
TensorBatch to_tensors(Batch batch, Precision precision, at::Device device);

/// Returns batches one after another, in the requested order. For use by one thread.
class DeviceLoader {
 public:
  virtual ~DeviceLoader() = default;
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
class DeviceDataset {
 public:
  /// Copies the images to the device if they are to be kept there. The data set must outlive this object.
  DeviceDataset(const Dataset& dataset, const DataSpec& spec, Precision precision, at::Device device);
  ~DeviceDataset();

  int64_t size() const { return dataset_.size(); }
  DataIdentity identity() const { return dataset_.identity(); }
  bool is_resident() const { return resident_ != nullptr; }

  /// This object must outlive its loaders.
  std::unique_ptr<DeviceLoader> training(const TrainingBatches& batches) const;
  std::unique_ptr<DeviceLoader> evaluation(const EvalBatches& batches) const;

 private:
  std::unique_ptr<DeviceLoader> device_loader(std::unique_ptr<BatchLoader> loader) const;

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
/// set that is not held in memory as a whole (data/image_array.h).
bool is_kept_on_device(const Dataset& dataset, DataLocation location, at::Device device);

}  // namespace sdp
