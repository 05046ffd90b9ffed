// Tokens per second of TokenDataset::training_batch, compared with a plain widening loop over the same
// windows of the same file, which is the minimum work:
//
//   bench_tokens [SIZE_MIB [SEQUENCE_LENGTH [BATCH_SIZE]]]
//
// A shard of SIZE_MIB is written to the folder for temporary files and stays in the system's cache. Both
// sides process all windows once per round, alternating. Printed are medians of CPU time (user and system),
// which depends less on other load than wall time.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokens.h"

namespace {

constexpr int kRounds = 15;
constexpr int64_t kHeaderBytes = 1024;
constexpr int64_t kVocabSize = 50257;

struct Sizes {
  int64_t mebibytes = 512;
  int64_t sequence_length = 1024;
  int64_t batch_size = 16;
};

template <class Token>
void write_shard(const std::filesystem::path& path, int64_t tokens) {
  std::vector<int32_t> header(kHeaderBytes / sizeof(int32_t));
  header[0] = sizeof(Token) == 2 ? 20240520 : 20240801;
  header[1] = sizeof(Token) == 2 ? 1 : 7;
  header[2] = static_cast<int32_t>(tokens);
  std::vector<Token> values(static_cast<size_t>(tokens));
  std::minstd_rand random(1);
  for (Token& value : values)
    value = static_cast<Token>(random() % kVocabSize);
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), kHeaderBytes);
  out.write(reinterpret_cast<const char*>(values.data()), tokens * static_cast<int64_t>(sizeof(Token)));
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Median CPU time per round for each side; the sides alternate, after a warm-up round.
std::vector<double> alternating_medians(const std::vector<std::function<void()>>& sides) {
  std::vector<std::vector<double>> seconds(sides.size());
  for (int round = 0; round <= kRounds; ++round)
    for (size_t i = 0; i < sides.size(); ++i) {
      const double start = cpu_seconds();
      sides[i]();
      if (round > 0) seconds[i].push_back(cpu_seconds() - start);
    }
  std::vector<double> medians(sides.size());
  std::transform(seconds.begin(), seconds.end(), medians.begin(), median);
  return medians;
}

/// Keeps the compiler from removing unused results.
volatile int64_t g_sum = 0;

template <class Token>
void plain_loop(std::span<const Token> tokens, const std::vector<sdp::TrainingSample>& samples,
                const Sizes& sizes, std::vector<int64_t>& batch) {
  const int64_t row = sizes.sequence_length + 1;
  int64_t in_batch = 0;
  for (const sdp::TrainingSample& sample : samples) {
    const Token* from = tokens.data() + sample.index * sizes.sequence_length;
    int64_t* to = batch.data() + in_batch * row;
    for (int64_t i = 0; i < row; ++i)
      to[i] = from[i];
    if (++in_batch == sizes.batch_size) {
      in_batch = 0;
      g_sum = g_sum + batch[0];
    }
  }
}

void through_dataset(const sdp::TokenDataset& dataset, const std::vector<sdp::TrainingSample>& samples,
                     const Sizes& sizes) {
  for (size_t at = 0; at < samples.size(); at += static_cast<size_t>(sizes.batch_size)) {
    const size_t count = std::min(static_cast<size_t>(sizes.batch_size), samples.size() - at);
    const sdp::Batch batch = dataset.training_batch(std::span(samples).subspan(at, count), {}, 0);
    g_sum = g_sum + batch.tokens[0];
  }
}

template <class Token>
void measure(const std::filesystem::path& folder, const Sizes& sizes) {
  const std::filesystem::path path = folder / "bench_train_000000.bin";
  const int64_t tokens = (sizes.mebibytes << 20) / static_cast<int64_t>(sizeof(Token));
  write_shard<Token>(path, tokens);
  const sdp::DataSpec spec{.set = sdp::TokensSpec{.sequence_length = sizes.sequence_length},
                           .path = folder.string()};
  const sdp::TokenDataset dataset(spec, sdp::Split::kTrain, kVocabSize);
  const sdp::MappedFile file(path);
  const std::span values(reinterpret_cast<const Token*>(file.bytes().data() + kHeaderBytes),
                         static_cast<size_t>(tokens));

  std::vector<sdp::TrainingSample> samples(static_cast<size_t>(dataset.size()));
  for (int64_t i = 0; i < dataset.size(); ++i)
    samples[static_cast<size_t>(i)] = {.position = i, .index = i};
  std::vector<int64_t> batch(static_cast<size_t>(sizes.batch_size * (sizes.sequence_length + 1)));
  for (const std::string_view order : {"sequential", "random"}) {
    if (order == "random") std::shuffle(samples.begin(), samples.end(), std::minstd_rand(2));
    const std::vector<double> seconds =
        alternating_medians({[&] { plain_loop(values, samples, sizes, batch); },
                             [&] { through_dataset(dataset, samples, sizes); }});
    const auto total = static_cast<double>(dataset.size() * sizes.sequence_length);
    fmt::print(
        "{} bits  {:<10}  plain loop {:7.1f} M tokens/s  TokenDataset {:7.1f} M tokens/s  ratio {:.3f}\n",
        8 * sizeof(Token), order, 1e-6 * total / seconds[0], 1e-6 * total / seconds[1],
        seconds[0] / seconds[1]);
  }
  std::filesystem::remove(path);
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  if (argc > 1) sizes.mebibytes = std::atoll(argv[1]);
  if (argc > 2) sizes.sequence_length = std::atoll(argv[2]);
  if (argc > 3) sizes.batch_size = std::atoll(argv[3]);
  if (argc > 4 || sizes.mebibytes < 1 || sizes.sequence_length < 1 || sizes.batch_size < 1) {
    fmt::print(stderr, "usage: bench_tokens [SIZE_MIB [SEQUENCE_LENGTH [BATCH_SIZE]]]\n");
    return 2;
  }
  std::string folder = (std::filesystem::temp_directory_path() / "bench-tokens-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    fmt::print(stderr, "cannot create {}\n", folder);
    return 1;
  }
  fmt::print("{} MiB, samples of {} tokens, batches of {}; medians of {} rounds of CPU time\n",
             sizes.mebibytes, sizes.sequence_length, sizes.batch_size, kRounds);
  measure<uint16_t>(folder, sizes);
  measure<uint32_t>(folder, sizes);
  std::filesystem::remove_all(folder);
  return 0;
}
