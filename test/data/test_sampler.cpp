#include <algorithm>
#include <numeric>
#include <vector>

#include "catch.h"
#include "data/sampler.h"

using namespace sdp;

namespace {

std::vector<int64_t> epoch_of(const Sampler& sampler, int64_t size, int64_t epoch) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i)
    order.push_back(sampler.index(epoch * size + i));
  return order;
}

std::vector<int64_t> identity(int64_t size) {
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

}  // namespace

TEST_CASE("every epoch is a permutation, different for every epoch and seed", "[data]") {
  constexpr int64_t kSize = 101;
  const Sampler sampler(kSize, 7);
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 5; ++epoch)
    orders.push_back(epoch_of(sampler, kSize, epoch));
  orders.push_back(epoch_of(Sampler(kSize, 8), kSize, 0));
  for (size_t i = 0; i < orders.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      CHECK(orders[i] != orders[j]);
    CHECK(orders[i] != identity(kSize));
    std::vector<int64_t> sorted = orders[i];
    std::sort(sorted.begin(), sorted.end());
    CHECK(sorted == identity(kSize));
  }
}

TEST_CASE("an index does not depend on earlier requests", "[data]") {
  constexpr int64_t kSize = 13;
  const Sampler forward(kSize, 1);
  std::vector<int64_t> expected;
  for (int64_t position = 0; position < 6 * kSize; ++position)
    expected.push_back(forward.index(position));
  const Sampler backward(kSize, 1);
  for (int64_t position = 6 * kSize - 1; position >= 0; --position)
    CHECK(backward.index(position) == expected[static_cast<size_t>(position)]);
}

TEST_CASE("a shuffle puts every index at every position equally often", "[data]") {
  for (const int64_t size : {2, 3, 5, 17}) {
    const int64_t epochs = size * 1000;
    const Sampler sampler(size, 2);
    std::vector<int64_t> count(static_cast<size_t>(size * size));
    for (int64_t position = 0; position < size * epochs; ++position)
      ++count[static_cast<size_t>(position % size * size + sampler.index(position))];
    for (const int64_t c : count)
      CHECK(std::abs(c - 1000) < 190);  // 6 standard deviations
  }
}

TEST_CASE("a data set of one sample, and refused arguments", "[data]") {
  const Sampler one(1, 0);
  CHECK(one.index(0) == 0);
  CHECK(one.index(1'000'000'000'000) == 0);
  CHECK_THROWS_AS(one.index(-1), std::logic_error);
  CHECK_THROWS_AS(Sampler(0, 0), std::logic_error);
}

TEST_CASE("every sample of an epoch is used exactly once over all workers", "[data]") {
  for (const int64_t workers : {1, 3, 4, 8})
    for (const int64_t replicas : {1, 2, 3})
      for (const int64_t accumulate : {1, 2, 5}) {
        const BatchGeometry geometry{workers, replicas, accumulate, 4};
        constexpr int64_t kSteps = 3;
        // Two and a half epochs: each of the first two is used up, whatever the size of the step.
        const int64_t total = kSteps * geometry.samples_per_step();
        const int64_t size = total * 2 / 5;
        const Sampler sampler(size, 9);
        std::vector<int64_t> uses_of_position(static_cast<size_t>(total));
        std::vector<int64_t> uses_in_two_epochs(static_cast<size_t>(size));
        for (int64_t step = 0; step < kSteps; ++step)
          for (int64_t worker = 0; worker < workers; ++worker)
            for (int64_t replica = 0; replica < replicas; ++replica)
              for (int64_t micro_batch = 0; micro_batch < accumulate; ++micro_batch)
                for (int64_t sample = 0; sample < 4; ++sample) {
                  const int64_t position = geometry.position(step, worker, replica, micro_batch, sample);
                  ++uses_of_position.at(static_cast<size_t>(position));
                  CHECK(position / geometry.samples_per_step() == step);
                  if (position < 2 * size) ++uses_in_two_epochs[static_cast<size_t>(sampler.index(position))];
                }
        CHECK(uses_of_position == std::vector<int64_t>(static_cast<size_t>(total), 1));
        CHECK(uses_in_two_epochs == std::vector<int64_t>(static_cast<size_t>(size), 2));
      }
}

TEST_CASE("positions match those computed by hand", "[data]") {
  const BatchGeometry geometry{3, 2, 4, 10};
  CHECK(geometry.samples_per_step() == 240);
  // pass = 1 * 4 + 2 = 6; ((5 * 8 + 6) * 3 + 2) * 10 + 7
  CHECK(geometry.position(5, 2, 1, 2, 7) == 1407);
  const BatchGeometry later{3, 2, 4, 10, /*first_position=*/-200};  // after 5 steps of 200 samples
  CHECK(later.position(5, 2, 1, 2, 7) == 1207);
}
