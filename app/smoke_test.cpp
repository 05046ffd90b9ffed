#include "smoke_test.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "train/run_rank.h"

namespace sdp {
namespace {

std::filesystem::path folder_of_smoke_tests() {
  return std::filesystem::temp_directory_path() / ("sdp-train-smoke-" + std::to_string(getuid()));
}

}  // namespace

ExperimentSpec smoke_test_of(ExperimentSpec spec) {
  spec.output.dir = folder_of_smoke_tests().string();
  spec.train.max_steps = 2;
  spec.train.log_every_steps = 1;
  spec.checkpoint.at_start = false;
  spec.checkpoint.every_steps = 2;
  EvalSpec& eval = spec.eval;
  const int64_t few = 2 * *eval.batch_size;
  eval.every_epochs = 0;
  eval.max_samples = std::min(eval.max_samples.value_or(few), few);
  eval.max_samples_per_subnetwork = std::min(eval.max_samples_per_subnetwork.value_or(few), *eval.batch_size);
  eval.recalibrate_batches = std::min<int64_t>(*eval.recalibrate_batches, 1);
  // The trial of auto takes many batches.
  if (eval.branch_scale == BranchScale::kAuto) eval.branch_scale = BranchScale::kSurvival;
  return spec;
}

SmokeTestFolder::SmokeTestFolder(const ExperimentSpec& spec) : dir_(run_folder_of(spec).dir) {
  std::filesystem::remove_all(dir_);
}

SmokeTestFolder::~SmokeTestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
  std::filesystem::remove(dir_.parent_path(), ignored);  // if no other smoke test runs
}

}  // namespace sdp
