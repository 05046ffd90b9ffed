#pragma once

namespace sdp {

/// A size that depends on the number of samples in the batch.
struct BatchSize {
  double fixed = 0;
  double per_sample = 0;

  double of(double samples) const { return fixed + per_sample * samples; }
  /// From its values for a batch and for another of twice as many samples.
  static BatchSize between(double of_batch, double of_twice, double batch) {
    return {2 * of_batch - of_twice, (of_twice - of_batch) / batch};
  }
};

}  // namespace sdp
