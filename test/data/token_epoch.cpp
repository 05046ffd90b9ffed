// Measures how much memory an epoch over a file of tokens larger than memory uses:
//
//   token_epoch FOLDER [GIBIBYTES]
//
// writes a sparse shard to FOLDER, reads every sample of it once as training does, and removes the shard.
// Fails if a marked token is not found exactly once, or if the process's own memory (RssAnon in
// /proc/self/status, which excludes the file's pages in the page cache) grew by 200 MB.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/tokens.h"

namespace {

constexpr int64_t kHeaderBytes = 1024;
constexpr int64_t kSequenceLength = 1024;
constexpr int64_t kBatchSize = 16;
constexpr int64_t kVocabSize = 50257;
constexpr int64_t kMarkedTokens = 1000;
constexpr double kAllowedMegabytes = 200;

double own_megabytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) * 1024e-6;
  return -1;
}

/// Zeros, and kMarkedTokens tokens 1, 2, .. spread over the samples.
void write_shard(const std::filesystem::path& path, int64_t tokens, int64_t samples) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
  const std::vector<uint32_t> header = {20240520, 1, static_cast<uint32_t>(tokens)};  // modulo 2^32
  bool written =
      ::ftruncate(file, kHeaderBytes + 2 * tokens) == 0 && ::pwrite(file, header.data(), 12, 0) == 12;
  for (int64_t i = 0; i < kMarkedTokens; ++i) {
    const auto marked = static_cast<uint16_t>(i + 1);
    const int64_t position = samples * kSequenceLength / kMarkedTokens * i + i;
    written = written && ::pwrite(file, &marked, 2, kHeaderBytes + 2 * position) == 2;
  }
  ::close(file);
  if (!written) throw std::runtime_error(path.string() + " cannot be written");
}

struct Epoch {
  std::vector<int64_t> found = std::vector<int64_t>(kMarkedTokens + 1);  // by marked token
  int64_t tokens = 0;
  double most_megabytes = 0;
};

/// In the order of training, through the loader; samples of the next epoch in the last batch are left out.
Epoch read_all(const sdp::TokenDataset& dataset) {
  Epoch epoch;
  const int64_t size = dataset.size();
  const int64_t batches = (size + kBatchSize - 1) / kBatchSize;
  sdp::BatchLoader loader(
      dataset,
      sdp::TrainingBatches{
          .geometry = {.workers = 1, .replicas = 1, .accumulate_steps = 1, .batch_size = kBatchSize},
          .slots = {{.worker = 0, .replica = 0}},
          .first_step = 0,
          .last_step = batches,
          .seed = 1},
      {.threads = 2, .prefetch_batches = 8});
  for (int64_t number = 0; number < batches; ++number) {
    const sdp::Batch batch = loader.next();
    const auto rows = static_cast<size_t>(std::min(kBatchSize, size - number * kBatchSize));
    for (size_t row = 0; row < rows; ++row)
      for (const int64_t token :
           std::span(batch.tokens).subspan(row * (kSequenceLength + 1), kSequenceLength))
        if (token > 0) ++epoch.found.at(static_cast<size_t>(token));
    epoch.tokens += static_cast<int64_t>(rows) * kSequenceLength;
    if (number % 1024 == 0) epoch.most_megabytes = std::max(epoch.most_megabytes, own_megabytes());
  }
  epoch.most_megabytes = std::max(epoch.most_megabytes, own_megabytes());
  return epoch;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) return 2;
  const std::filesystem::path folder = argv[1], path = folder / "sparse_train_000000.bin";
  const int64_t tokens = ((argc == 3 ? std::stoll(argv[2]) : 20) << 30) / 2;
  const int64_t samples = (tokens - 1) / kSequenceLength;
  std::filesystem::create_directories(folder);
  write_shard(path, tokens, samples);

  const double before = own_megabytes();
  const sdp::DataSpec spec{.set = sdp::TokensSpec{.sequence_length = kSequenceLength},
                           .path = folder.string()};
  const auto start = std::chrono::steady_clock::now();
  const Epoch epoch = read_all(sdp::TokenDataset(spec, sdp::Split::kTrain, kVocabSize));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::filesystem::remove(path);

  const double grown = epoch.most_megabytes - before;
  const bool found_all =
      std::all_of(epoch.found.begin() + 1, epoch.found.end(), [](int64_t n) { return n == 1; });
  fmt::print("{} tokens in {:.0f} s; own memory {:.1f} MB before, at most {:.1f} MB; marked tokens {}\n",
             epoch.tokens, seconds.count(), before, epoch.most_megabytes,
             found_all ? "found once each" : "NOT found once each");
  return before > 0 && grown < kAllowedMegabytes && found_all && epoch.tokens == samples * kSequenceLength
             ? 0
             : 1;
}
