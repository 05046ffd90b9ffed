// Writes what lib/data makes of a folder to stdout, for oracle.py:
//   dump_data FOLDER pixels train|test     per image: label (1 byte), pixels (3072 bytes)
//   dump_data FOLDER batches SEED          per batch: samples, labels (int64), images (float32)
#include <cstdio>
#include <span>
#include <string>

#include "data/loader.h"
#include "spec/error.h"

namespace {

template <class T>
void put(std::span<const T> values) {
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

void dump_pixels(const sdp::ImageDataset& dataset) {
  std::vector<uint8_t> record(static_cast<size_t>(1 + dataset.shape().numel()));
  for (int64_t index = 0; index < dataset.size(); ++index) {
    record[0] = static_cast<uint8_t>(dataset.label(index));
    dataset.read(index, std::span(record).subspan(1));
    put<uint8_t>(record);
  }
}

/// The geometry that oracle.py repeats.
void dump_batches(const sdp::ImageDataset& dataset, uint64_t seed) {
  sdp::BatchLoader loader(dataset,
                          {.geometry = {.workers = 4, .replicas = 2, .accumulate_steps = 3, .batch_size = 16},
                           .slots = {{.worker = 1, .replica = 0}, {.worker = 3, .replica = 1}},
                           .first_step = 11,
                           .last_step = 15,
                           .seed = seed,
                           .augment = {sdp::Augmentation::kCrop, sdp::Augmentation::kFlip},
                           .threads = 2,
                           .prefetch_batches = 4});
  while (!loader.done()) {
    const sdp::ImageBatch batch = loader.next();
    put<int64_t>(batch.samples);
    put<int64_t>(batch.labels);
    put<float>(batch.images);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return static_cast<int>(sdp::ExitCode::kUsage);
  try {
    sdp::DataSpec spec;
    spec.path = argv[1];
    const std::string what = argv[2];
    const std::string argument = argv[3];
    const sdp::Split split = argument == "test" ? sdp::Split::kTest : sdp::Split::kTrain;
    const auto dataset = sdp::open_dataset(spec, split);
    if (what == "pixels")
      dump_pixels(*dataset);
    else
      dump_batches(*dataset, std::stoull(argument));
  } catch (const sdp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
