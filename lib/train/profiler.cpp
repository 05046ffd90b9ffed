#include "train/profiler.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <exception>
#include <set>
#include <utility>

#include "device/device.h"

namespace sdp {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

constexpr int64_t kStepsBefore = 5;  // the fourth step captures a CUDA graph

}  // namespace

StepProfiler::StepProfiler(int64_t first_step, int64_t steps, c10::Device device, std::filesystem::path file)
    : begin_(first_step + kStepsBefore), end_(begin_ + steps), device_(device), file_(std::move(file)) {}

StepProfiler::~StepProfiler() {
  try {
    write();
  } catch (const std::exception&) {
    // A run that ends early has no other use for the trace.
  }
}

void StepProfiler::before_step(int64_t step) {
  if (step != begin_ || begin_ == end_) return;
  synchronize(device_);
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device_.is_cuda()) activities.insert(ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  is_recording_ = true;
}

void StepProfiler::after_step(int64_t step) {
  if (step + 1 == end_) write();
}

void StepProfiler::write() {
  if (!std::exchange(is_recording_, false)) return;
  synchronize(device_);  // include the last kernels
  profiler::disableProfiler()->save(file_.string());
}

}  // namespace sdp
