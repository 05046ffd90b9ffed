#pragma once

// Copies batches to a GPU while it computes.

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "data/device_loader.h"
#include "data/loader.h"
#include "process/condition_variable.h"

namespace sdp {

/// A stream for copies to the device; none on a CPU.
std::optional<c10::Stream> make_copy_stream(at::Device device);

/// A thread that takes batches from a loader, pins them and starts their copies in a separate stream, some
/// batches ahead. The device waits for a copy when the batch is first used; the host never waits.
class CopyAheadLoader final : public DeviceLoader {
 public:
  /// `stream`: for the copies; none on a CPU. Successive loaders should share it, as the allocator keeps a
  /// separate memory pool per stream.
  CopyAheadLoader(std::unique_ptr<BatchLoader> loader, Precision precision, at::Device device,
                  std::optional<c10::Stream> stream);

  TensorBatch next() override;
  double wait_ms() const override { return wait_ms_; }

 private:
  /// Maximum number of copies that are ready or in progress. Each takes a batch's memory on the device; so
  /// does a batch in use until the device has finished with it.
  static constexpr size_t kBatchesAhead = 2;

  struct Copy {
    TensorBatch batch = {};
    std::optional<c10::Event> done = {};  ///< recorded after the copy; none on a CPU
    std::exception_ptr error = {};
  };

  void copy_batches(const std::stop_token& stop);
  Copy make_copy();

  std::unique_ptr<BatchLoader> loader_;
  Precision precision_;
  at::Device device_;
  std::optional<c10::Stream> stream_;
  double wait_ms_ = 0;

  std::mutex mutex_;  // guards copies_
  std::condition_variable_any room_;
  std::condition_variable ready_;
  std::deque<Copy> copies_;

  std::jthread thread_;  // last member: stopped and joined before the others are destroyed
};

}  // namespace sdp
