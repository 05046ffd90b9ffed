#pragma once

// Batches prepared ahead by threads. The result of next() does not depend on the number of threads.

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/batches.h"
#include "data/dataset.h"
#include "process/condition_variable.h"

namespace sdp {

/// Makes batch `number` of a loader's order; thread-safe. A batch that was stopped must not be used.
using MakeBatch = std::function<Batch(int64_t number, const std::stop_token& stop)>;

struct LoaderThreads {
  int64_t threads;
  int64_t prefetch_batches;  ///< maximum number of batches that are ready or in progress
};

/// next(), done() and wait_ms() must be called by one thread.
class BatchLoader {
 public:
  /// Starts preparing batches 0..count-1 immediately. Throws std::logic_error for numbers out of range.
  BatchLoader(int64_t count, MakeBatch make, LoaderThreads threads);
  /// The data set must outlive the loader.
  BatchLoader(const Dataset& dataset, const TrainingBatches& batches, LoaderThreads threads);
  BatchLoader(const Dataset& dataset, const EvalBatches& batches, LoaderThreads threads);
  ~BatchLoader();

  /// The next batch in order; waits until it is ready. Rethrows errors from making it; throws
  /// std::logic_error if done().
  Batch next();

  /// Whether all batches were taken.
  bool done() const { return taken_ == count_; }

  /// Total time that next() has waited.
  double wait_ms() const { return wait_ms_; }

 private:
  struct Place {
    std::optional<Batch> batch;
    std::exception_ptr error;

    bool ready() const { return batch.has_value() || error != nullptr; }
  };

  void prepare_batches(const std::stop_token& stop);

  int64_t count_;
  MakeBatch make_;
  LoaderThreads options_;
  double wait_ms_ = 0;

  std::mutex mutex_;  // guards the following members, but only next() writes taken_
  std::condition_variable_any room_;
  std::condition_variable ready_;
  int64_t claimed_ = 0;
  int64_t taken_ = 0;
  std::vector<Place> ring_;  // batch number n is at n % size

  std::vector<std::jthread> threads_;  // last member: stopped and joined before the others are destroyed
};

}  // namespace sdp
