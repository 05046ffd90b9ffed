#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "catch.h"
#include "data/image_array.h"
#include "data/loader.h"
#include "data/random.h"
#include "data/sampler.h"
#include "data/tokens.h"
#include "fixtures.h"

using namespace sdp;
using namespace sdp::testing;

// How far ahead batches are made, and errors at their place: test_feed.cpp. Random streams and the order,
// augmentation and mixing of the batches of several processes are compared with Python by oracle.py.

namespace {

constexpr LoaderThreads kOneThread{.threads = 1, .prefetch_batches = 3};

TrainingBatches some_batches() {
  return {.geometry = {.workers = 3, .replicas = 2, .accumulate_steps = 2, .batch_size = 4},
          .slots = {{.worker = 2, .replica = 0}, {.worker = 0, .replica = 1}},
          .first_step = 0,
          .last_step = 6,
          .seed = 11,
          .augment = {.steps = {Augmentation::kCrop, Augmentation::kFlip}}};
}

/// begin..end-1
std::vector<int64_t> numbers(int64_t begin, int64_t end) {
  std::vector<int64_t> all(static_cast<size_t>(end - begin));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

template <class Batches>
std::vector<Batch> all_batches(const Dataset& dataset, const Batches& of,
                               LoaderThreads threads = kOneThread) {
  BatchLoader loader(dataset, of, threads);
  std::vector<Batch> batches;
  while (!loader.done())
    batches.push_back(loader.next());
  return batches;
}

/// These samples at the positions 0, 1, ...
Batch train_on(const Dataset& dataset, const std::vector<int64_t>& samples) {
  std::vector<TrainingSample> wanted;
  for (const int64_t sample : samples)
    wanted.push_back({.position = static_cast<int64_t>(wanted.size()), .index = sample});
  return dataset.training_batch(wanted, {.steps = {Augmentation::kFlip}}, /*seed=*/7);
}

}  // namespace

TEST_CASE("the number of threads and the length of the queue change nothing") {
  PatternDataset dataset(50);
  TrainingBatches of = some_batches();
  of.augment.mixup_alpha = 0.2;
  of.augment.cutmix_alpha = 1;
  const std::vector<Batch> expected = all_batches(dataset, of);
  // Early images are slow, so that later batches are ready first.
  dataset.before_read = [](int64_t index) {
    std::this_thread::sleep_for(std::chrono::microseconds(index % 3 * 200));
  };
  for (const int64_t threads : {1, 4})
    for (const int64_t prefetch : {1, 2, 5})
      CHECK(all_batches(dataset, of, {.threads = threads, .prefetch_batches = prefetch}) == expected);
}

TEST_CASE("a loader in the middle of long batches is destroyed without finishing them") {
  PatternDataset dataset(50);
  std::atomic<int64_t> reads = 0;
  dataset.before_read = [&](int64_t) {
    ++reads;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  TrainingBatches of = some_batches();
  of.geometry.batch_size = 10'000;
  { const BatchLoader loader(dataset, of, {.threads = 2, .prefetch_batches = 3}); }
  CHECK(reads < 10'000);
}

TEST_CASE("the time that next() waits, and the end of the batches") {
  PatternDataset dataset(50);
  dataset.before_read = [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  TrainingBatches of = some_batches();
  BatchLoader loader(dataset, of, kOneThread);
  CHECK(loader.wait_ms() == 0);
  loader.next();  // four images
  CHECK(loader.wait_ms() > 20);
  of.last_step = 0;
  BatchLoader nothing(dataset, of, kOneThread);
  CHECK(nothing.done());
  CHECK_THROWS_AS(nothing.next(), std::logic_error);
}

TEST_CASE("processes divide a test set by its batches") {
  const PatternDataset dataset(50);
  EvalBatches batches{.samples = numbers(0, 50), .batch_size = 7, .stride = 3};
  for (batches.first_batch = 0; batches.first_batch < 3; ++batches.first_batch) {
    std::vector<Batch> expected;
    for (int64_t begin = 7 * batches.first_batch; begin < 50; begin += 3 * 7)
      expected.push_back(dataset.eval_batch(numbers(begin, std::min<int64_t>(begin + 7, 50))));
    CHECK(all_batches(dataset, batches, {.threads = 2, .prefetch_batches = 2}) == expected);
  }
  batches = {.samples = numbers(0, 50), .batch_size = 100, .first_batch = 1, .stride = 2};
  CHECK(all_batches(dataset, batches).empty());
}

TEST_CASE("samples are evenly spread over a data set") {
  CHECK(evenly_spread(0, 10).empty());
  CHECK(evenly_spread(3, 0).empty());
  for (const int64_t size : {1, 2, 7, 40}) {
    for (const int64_t all : {size, size + 1, std::numeric_limits<int64_t>::max()})
      CHECK(evenly_spread(all, size) == numbers(0, size));
    for (int64_t count = 1; count < size; ++count)
      for (int64_t i = 0; i < count; ++i)
        CHECK(evenly_spread(count, size).at(static_cast<size_t>(i)) == i * size / count);
  }
  // 2^62 + 1: twice this number does not fit into 63 bits.
  CHECK(evenly_spread(3, 4611686018427387905) ==
        std::vector<int64_t>{0, 1537228672809129301, 3074457345618258603});
}

TEST_CASE("eval_batch gives the samples in the requested order, normalized only") {
  const PatternDataset dataset(50);
  const Batch batch = dataset.eval_batch(std::vector<int64_t>{17, 18, 4});
  CHECK(batch.samples == std::vector<int64_t>{17, 18, 4});
  CHECK(batch.labels == std::vector<int64_t>{7, 8, 4});
  // Pixel 40 of image 18 is in channel 1: (18 * 31 + 40 * 7) mod 256 = 70.
  CHECK(batch.images.at(90 + 40) == Approx((70 / 255.0 - 0.4) / 0.25));
  for (const int64_t outside : {-1, 50})
    CHECK_THROWS_AS(dataset.eval_batch(std::vector{outside}), std::logic_error);
}

TEST_CASE("a damaged image is replaced in training and left out of evaluation, if requested") {
  PatternDataset dataset(10, OnError::kSkip);
  dataset.before_read = [](int64_t index) {
    if (index == 3 || index == 9) throw DamagedImageError("image " + std::to_string(index));
  };
  Batch training = train_on(dataset, {3, 5, 9});
  CHECK(training.skipped == std::vector<std::string>{"image 3", "image 9"});
  // The replacement takes the position, and therefore the augmentation, of the replaced image.
  training.skipped.clear();
  CHECK(training == train_on(dataset, {4, 5, 0}));
  Batch expected = dataset.eval_batch(std::vector<int64_t>{2, 4, 5});
  expected.skipped = {"image 3"};
  CHECK(dataset.eval_batch(numbers(2, 6)) == expected);
}

TEST_CASE("skipping ends if every image is damaged, or a file cannot be read") {
  PatternDataset dataset(200, OnError::kSkip);
  const auto train = [&] { train_on(dataset, {3}); };
  dataset.before_read = [](int64_t) { throw DamagedImageError("broken"); };
  CHECK_SAYS(message_of<DataError>(train), "100 images", "broken");
  CHECK_SAYS(message_of<DataError>([&] { dataset.eval_batch(numbers(50, 199)); }), "100 images");
  CHECK(dataset.eval_batch(numbers(50, 140)).samples.empty());

  dataset.before_read = [](int64_t) { throw DataError("the disk is gone"); };
  CHECK(message_of<DataError>(train) == "the disk is gone");
  CHECK(message_of<DataError>([&] { dataset.eval_batch(numbers(0, 5)); }) == "the disk is gone");
}

// ---- data.validation_share ----

TEST_CASE("both sides together are the training set, without overlap") {
  for (const int64_t size : {2, 3, 10, 97, 1000})
    for (const double share : {1e-9, 0.1, 0.25, 0.49}) {
      std::vector<int64_t> all = samples_of_side(size, share, Split::kTrain);
      const std::vector<int64_t> held_out = samples_of_side(size, share, Split::kTest);
      const auto expected = std::max<int64_t>(1, std::llround(share * static_cast<double>(size)));
      CHECK(held_out == evenly_spread(expected, size));
      CHECK(std::is_sorted(all.begin(), all.end()));
      all.insert(all.end(), held_out.begin(), held_out.end());
      std::sort(all.begin(), all.end());
      CHECK(all == numbers(0, size));
    }
  CHECK_THROWS_AS(samples_of_side(1, 0.5, Split::kTrain), UsageError);
  CHECK_THROWS_AS(samples_of_side(10, 0.99, Split::kTest), UsageError);
}

TEST_CASE("a subset gives the samples of the whole set, of any kind; a damaged image is replaced from it") {
  const TempFolder folder;
  std::vector<uint16_t> tokens(20 * 4 + 1);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  folder.write("text_train_000000.bin", token_shard(tokens));
  ImageArray array{.shape = {1, 1, 2}, .num_classes = 10, .normalization = {.mean = {0}, .stddev = {1}}};
  for (uint8_t i = 0; i < 20; ++i) {
    array.pixels.insert(array.pixels.end(), {i, static_cast<uint8_t>(100 + i)});
    array.labels.push_back(i % 10);
  }
  const std::vector<std::function<std::unique_ptr<Dataset>()>> kinds = {
      [&] { return std::make_unique<ArrayDataset>(array); },
      [&] { return std::make_unique<PatternDataset>(20); },
      [&] { return std::make_unique<TokenDataset>(tokens_in(folder.path(), 4), Split::kTrain, 1 << 16); }};
  for (const auto& open : kinds) {
    const auto whole = open(), subset = subset_of(open(), {1, 4, 7, 15});
    CHECK(subset->size() == 4);
    CHECK(subset->identity().samples == 4);
    CHECK(subset->identity() != whole->identity());
    Batch evaluated = whole->eval_batch(std::vector<int64_t>{15, 1}), trained = train_on(*whole, {7, 4});
    evaluated.samples = {3, 0};
    trained.samples = {2, 1};
    CHECK(subset->eval_batch(evaluated.samples) == evaluated);
    CHECK(train_on(*subset, trained.samples) == trained);
  }
  auto damaged = std::make_unique<PatternDataset>(20, OnError::kSkip);
  damaged->before_read = [](int64_t index) {
    if (index == 4) throw DamagedImageError("image 4 is damaged");
  };
  const Batch batch = train_on(*subset_of(std::move(damaged), {1, 4, 7, 15}), {1});
  CHECK(batch.samples == std::vector<int64_t>{2});
  CHECK(batch.labels == std::vector<int64_t>{7});
}

// ---- random numbers and the order of samples ----

TEST_CASE("philox4x32 gives the known answer of Random123's kat_vectors") {
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("below(n) keeps large ranges unbiased, and refuses 0") {
  // Without rejection, multiply-high of n = 3 * 2^62 gives every third value twice as often.
  constexpr uint64_t n = uint64_t{3} << 62;
  constexpr int kDraws = 30'000;
  std::array<int, 3> count{};
  CounterRandom random(4, RandomPurpose::kCrop, 0);
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t value = random.below(n);
    REQUIRE(value < n);
    ++count[value % 3];
  }
  for (const int c : count)
    CHECK(std::abs(c - kDraws / 3) < 500);
  CHECK_THROWS_AS(random.below(0), std::logic_error);
}

TEST_CASE("symmetric_beta has the moments of Beta(alpha, alpha), and refuses values that are not positive") {
  constexpr int kDraws = 50'000;
  for (const double alpha : {0.01, 0.2, 1.0, 1.5, 40.0}) {
    CounterRandom random(17, RandomPurpose::kMix, 0);
    double sum = 0, sum_of_squares = 0, sum_of_fourths = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double draw = random.symmetric_beta(alpha);
      REQUIRE((draw >= 0 && draw <= 1));
      sum += draw - 0.5;
      sum_of_squares += std::pow(draw - 0.5, 2);
      sum_of_fourths += std::pow(draw - 0.5, 4);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    const double fourth = variance * variance * 3 * (2 * alpha + 1) / (2 * alpha + 3);  // central
    INFO(alpha);
    CHECK(std::abs(sum / kDraws) < 5 * std::sqrt(variance / kDraws));
    CHECK(std::abs(sum_of_squares / kDraws - variance) <
          5 * std::sqrt((fourth - variance * variance) / kDraws));
    CHECK(sum_of_fourths / kDraws == Approx(fourth).epsilon(0.06));
  }
  CounterRandom random(1, RandomPurpose::kMix, 0);
  for (int i = 0; i < 100; ++i) {
    const double either = random.symmetric_beta(1e-9);
    CHECK((either < 1e-6 || either > 1 - 1e-6));
    CHECK(random.symmetric_beta(1e12) == Approx(0.5).epsilon(1e-4));
  }
  for (const double alpha : {0.0, -1.0, std::nan("")})
    CHECK_THROWS_AS(random.symmetric_beta(alpha), std::logic_error);
}

TEST_CASE("every epoch is a permutation, different for every epoch and seed") {
  for (const int64_t size : {1, 2, 3, 4, 5, 16, 17, 101}) {
    std::vector<std::vector<int64_t>> orders(7, std::vector<int64_t>(static_cast<size_t>(size)));
    std::iota(orders[0].begin(), orders[0].end(), int64_t{0});
    for (int64_t i = 0; i < 6 * size; ++i)  // an epoch of another seed, and five of one
      orders[static_cast<size_t>(1 + i / size)][static_cast<size_t>(i % size)] =
          i < size ? Sampler(size, 8).index(i) : Sampler(size, 7).index(i - size);
    for (size_t i = 0; i < orders.size(); ++i) {
      CHECK(std::is_permutation(orders[i].begin(), orders[i].end(), orders[0].begin()));
      for (size_t j = 0; size == 101 && j < i; ++j)
        CHECK(orders[i] != orders[j]);
    }
  }
  CHECK(Sampler(1, 0).index(1'000'000'000'000) == 0);
  CHECK_THROWS_AS(Sampler(1, 0).index(-1), std::logic_error);
  CHECK_THROWS_AS(Sampler(0, 0), std::logic_error);
}

TEST_CASE("every position of a step is used exactly once over all workers") {
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
  // After 5 steps of 200 samples. Pass = 1 * 4 + 2 = 6; -200 + ((5 * 8 + 6) * 3 + 2) * 10 + 7.
  const BatchGeometry later{3, 2, 4, 10, /*first_position=*/-200};
  CHECK(later.position(5, 2, 1, 2, 7) == 1207);
}
