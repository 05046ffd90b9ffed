#include "data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "catch.h"
#include "data/batches.h"
#include "data/image_array.h"
#include "data/tokens.h"
#include "fixtures.h"

namespace sdp::testing {
namespace {

Batch train_on(const Dataset& dataset, std::vector<int64_t> samples) {
  std::vector<TrainingSample> wanted;
  for (const int64_t sample : samples)
    wanted.push_back({.position = sample, .index = sample});
  return dataset.training_batch(wanted, {}, /*seed=*/1);
}

ImageArray small_array() {
  ImageArray array{.shape = {.channels = 1, .height = 1, .width = 2},
                   .num_classes = 10,
                   .normalization = {.mean = {0}, .stddev = {1}}};
  for (uint8_t i = 0; i < 20; ++i) {
    array.pixels.insert(array.pixels.end(), {i, static_cast<uint8_t>(100 + i)});
    array.labels.push_back(i % 10);
  }
  return array;
}

}  // namespace

TEST_CASE("both sides together are the training set, without overlap", "[data]") {
  for (const int64_t size : {2, 3, 10, 97, 1000})
    for (const double share : {1e-9, 0.1, 0.25, 0.49}) {
      std::vector<int64_t> all = samples_of_side(size, share, Split::kTrain);
      const std::vector<int64_t> held_out = samples_of_side(size, share, Split::kTest);
      const auto expected = std::max<int64_t>(1, std::llround(share * static_cast<double>(size)));
      CHECK(held_out == evenly_spread(expected, size));
      CHECK(std::is_sorted(all.begin(), all.end()));
      all.insert(all.end(), held_out.begin(), held_out.end());
      std::sort(all.begin(), all.end());
      CHECK(all == evenly_spread(size, size));
    }
  CHECK_THROWS_AS(samples_of_side(1, 0.5, Split::kTrain), UsageError);
  CHECK_THROWS_AS(samples_of_side(10, 0.99, Split::kTest), UsageError);
}

TEST_CASE("a subset gives the samples of the whole set", "[data]") {
  const std::vector<int64_t> chosen = {1, 4, 7, 15};
  const auto check = [&](const Dataset& whole, const Dataset& subset) {
    CHECK(subset.size() == 4);
    CHECK(subset.identity().samples == 4);
    CHECK(subset.identity() != whole.identity());
    const auto check_batch = [&](const Batch& own, Batch expected, const std::vector<int64_t>& samples) {
      expected.samples = samples;
      CHECK(own == expected);
    };
    check_batch(subset.eval_batch(std::vector<int64_t>{3, 0}), whole.eval_batch(std::vector<int64_t>{15, 1}),
                {3, 0});
    check_batch(train_on(subset, {2, 1}), train_on(whole, {7, 4}), {2, 1});
  };
  const ArrayDataset array(small_array());
  check(array, *subset_of(std::make_unique<ArrayDataset>(small_array()), chosen));
  check(PatternDataset(20), *subset_of(std::make_unique<PatternDataset>(20), chosen));
  const TempFolder folder;
  std::vector<uint16_t> tokens(20 * 4 + 1);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  folder.write("text_train_000000.bin", token_shard(tokens));
  const auto open = [&] {
    return std::make_unique<TokenDataset>(tokens_in(folder.path(), 4), Split::kTrain, /*vocab_size=*/1 << 16);
  };
  check(*open(), *subset_of(open(), chosen));
}

TEST_CASE("a damaged image of a subset is replaced by one of the subset", "[data]") {
  auto whole = std::make_unique<PatternDataset>(20, OnError::kSkip);
  whole->before_read = [](int64_t index) {
    if (index == 4) throw DamagedImageError("image 4 is damaged");
  };
  const auto subset = subset_of(std::move(whole), {1, 4, 7, 15});
  const Batch batch = train_on(*subset, {1});
  CHECK(batch.samples == std::vector<int64_t>{2});
  CHECK(batch.labels == std::vector<int64_t>{7});
}

}  // namespace sdp::testing
