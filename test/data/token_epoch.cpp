// What an epoch over a file of tokens larger than memory takes of it:
//
//   token_epoch FOLDER [GIBIBYTES]
//
// writes a sparse shard to FOLDER, reads every sample of it once in a scattered order through TokenDataset,
// and removes the shard. Fails when a marked token is not found exactly once, or when the process's own
// memory (RssAnon in /proc/self/status: all but the file's pages in the system's cache) grew by 200 MB.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

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

/// A step through 0..size-1 that reaches all, far from 1 and from any power of two.
int64_t scattered_step(int64_t size) {
  int64_t step = static_cast<int64_t>(0.6180339887 * static_cast<double>(size)) | 1;
  while (std::gcd(step, size) != 1)
    step += 2;
  return step;
}

struct Epoch {
  std::vector<int64_t> found = std::vector<int64_t>(kMarkedTokens + 1);  // by marked token
  int64_t tokens = 0;
  double most_megabytes = 0;
};

Epoch read_all(const sdp::TokenDataset& dataset) {
  Epoch epoch;
  const int64_t size = dataset.size(), step = scattered_step(size);
  int64_t index = 0;
  for (int64_t position = 0; position < size; position += kBatchSize) {
    std::vector<sdp::TrainingSample> samples;
    for (int64_t i = position; i < std::min(position + kBatchSize, size); ++i) {
      samples.push_back({.position = i, .index = index});
      index = (index + step) % size;
    }
    const sdp::Batch batch = dataset.training_batch(samples, {}, 0);
    for (size_t row = 0; row < samples.size(); ++row)
      for (const int64_t token :
           std::span(batch.tokens).subspan(row * (kSequenceLength + 1), kSequenceLength))
        if (token > 0) ++epoch.found.at(static_cast<size_t>(token));
    epoch.tokens += static_cast<int64_t>(samples.size()) * kSequenceLength;
    if (position / kBatchSize % 1024 == 0)
      epoch.most_megabytes = std::max(epoch.most_megabytes, own_megabytes());
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
  sdp::DataSpec spec;
  spec.path = folder.string();
  spec.sequence_length = kSequenceLength;
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
