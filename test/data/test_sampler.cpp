#include <algorithm>
#include <numeric>
#include <vector>

#include "catch.h"
#include "data/sampler.h"

using namespace sdp;

// The order itself is compared with plain Python by oracle.py.

namespace {

std::vector<int64_t> epoch_of(const Sampler& sampler, int64_t size, int64_t epoch) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < size; ++i)
    order.push_back(sampler.index(epoch * size + i));
  return order;
}

}  // namespace

TEST_CASE("every epoch is a permutation, different for every epoch and seed", "[data]") {
  for (const int64_t size : {1, 2, 3, 4, 5, 16, 17, 101}) {
    std::vector<int64_t> identity(static_cast<size_t>(size));
    std::iota(identity.begin(), identity.end(), int64_t{0});
    std::vector<std::vector<int64_t>> orders = {epoch_of(Sampler(size, 8), size, 0)};
    for (int64_t epoch = 0; epoch < 5; ++epoch)
      orders.push_back(epoch_of(Sampler(size, 7), size, epoch));
    for (size_t i = 0; i < orders.size(); ++i) {
      for (size_t j = 0; size == 101 && j < i; ++j)
        CHECK(orders[i] != orders[j]);
      CHECK(std::is_permutation(orders[i].begin(), orders[i].end(), identity.begin()));
    }
    CHECK((size < 101 || orders[1] != identity));
  }
  CHECK(Sampler(1, 0).index(1'000'000'000'000) == 0);
  CHECK_THROWS_AS(Sampler(1, 0).index(-1), std::logic_error);
  CHECK_THROWS_AS(Sampler(0, 0), std::logic_error);
}

TEST_CASE("every position of a step is used exactly once over all workers", "[data]") {
  for (const int64_t workers : {1, 3, 4})
    for (const int64_t replicas : {1, 2, 3})
      for (const int64_t accumulate : {1, 2, 5}) {
        const BatchGeometry geometry{workers, replicas, accumulate, 4};
        std::vector<int64_t> uses(static_cast<size_t>(2 * geometry.samples_per_step()));
        for (int64_t sample = 0; sample < geometry.samples_per_step(); ++sample)
          for (const int64_t step : {0, 1}) {
            const int64_t micro_batch = sample / 4 % accumulate, pass = sample / 4 / accumulate;
            ++uses.at(static_cast<size_t>(
                geometry.position(step, pass % workers, pass / workers, micro_batch, sample % 4)));
          }
        CHECK(uses == std::vector<int64_t>(uses.size(), 1));
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
