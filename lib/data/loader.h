#pragma once

// Batches of a process's workers, prepared ahead by threads. What next() returns does not depend on how many.

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

namespace sdp {

/// One worker in one replica.
struct SlotId {
  int64_t worker;
  int64_t replica;
};

struct LoaderOptions {
  BatchGeometry geometry;
  std::vector<SlotId> slots;  ///< of this process
  int64_t first_step;
  int64_t last_step;  ///< one past the last
  uint64_t seed;      ///< of the sampler and the augmentation
  ImageAugmentation augment = {};
  int64_t threads;
  int64_t prefetch_batches;  ///< batches that are ready or in the making at any time, at most
};

/// next(), done() and wait_ms() are for one thread.
class BatchLoader {
 public:
  /// Starts preparing at once. The data set must outlive the loader. Throws std::logic_error for options that
  /// are out of range.
  BatchLoader(const Dataset& dataset, LoaderOptions options);

  /// The next batch in the order: for each step, for each micro-batch, for each of options.slots as listed.
  /// Waits for it if need be. Rethrows what reading it threw; throws std::logic_error when done().
  Batch next();

  /// Whether all batches were taken.
  bool done() const { return taken_ == total_; }

  /// Time that next() has waited so far.
  double wait_ms() const { return wait_ms_; }

 private:
  struct Place {
    std::optional<Batch> batch;
    std::exception_ptr error;

    bool ready() const { return batch.has_value() || error != nullptr; }
  };

  void prepare_batches(const std::stop_token& stop);
  /// Batch `number` of the order of next(); nothing when stopped half-way.
  std::optional<Batch> make_batch(int64_t number, const std::stop_token& stop) const;

  const Dataset& dataset_;
  LoaderOptions options_;
  Sampler sampler_;
  int64_t total_;
  double wait_ms_ = 0;

  std::mutex mutex_;  // guards what follows, except that only next() writes taken_
  std::condition_variable_any room_;
  std::condition_variable ready_;
  int64_t claimed_ = 0;
  int64_t taken_ = 0;
  std::vector<Place> ring_;  // batch number n is at n % size

  std::vector<std::jthread> threads_;  // last: stopped and joined before anything they use goes
};

}  // namespace sdp
