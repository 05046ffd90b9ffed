#include "run/run_output.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "engine/device.h"
#include "engine/train_step.h"
#include "process/signals.h"
#include "run/logging_interval.h"

namespace sdp {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

constexpr int64_t kStepsBefore = 5;  // the fourth step captures a CUDA graph

}  // namespace

RunConsole::RunConsole(Logger log, int rank, int64_t log_every_steps)
    : log_(std::move(log)), line_(rank == 0 ? STDOUT_FILENO : -1), progress_(line_, log_every_steps) {}

void RunConsole::info(const std::string& message) {
  line_.clear();
  log_.info(message);
}

void RunConsole::warn(const std::string& message) {
  line_.clear();
  log_.warn(message);
}

void RunConsole::show(const ProgressState& state) {
  progress_.update(state);
  log_.record(format_progress_line(*progress_.state()));
}

void RunConsole::show(const TrainRecord& record, const RunSteps& steps) {
  show({.step = record.step,
        .total_steps = steps.length.total_steps,
        .epoch = record.epoch,
        .total_epochs = steps.epochs,
        .loss = record.loss,
        .lr = record.lr,
        .gradient_norm = record.gradient_norm,
        .samples_per_s = record.samples_per_s,
        .tokens_per_s = record.tokens_per_s,
        .tokens = record.tokens,
        .utilization = record.utilization,
        .process_memory_bytes = record.processes.peak_process_memory_bytes,
        .tensor_memory_bytes = record.processes.peak_tensor_memory_bytes});
}

void RunConsole::report_skipped(const std::string& message) {
  if (reported_.insert(message).second) warn(fmt::format("skipped: {}", message));
}

StepTrace::StepTrace(const Experiment& experiment, const RunFolder& folder, Communicator& comm)
    : experiment_(experiment), comm_(comm) {
  if (comm.rank() == 0) lines_.emplace(folder.trace());
}

void StepTrace::append(int64_t step, const at::Tensor& losses, const std::vector<int64_t>& samples) {
  const std::vector<double> all_losses = gather(comm_, {}, losses).losses;
  const at::Tensor mine = at::tensor(samples, at::kLong).to(comm_.device());
  at::Tensor all = at::empty({comm_.size() * mine.numel()}, mine.options());
  comm_.all_gather(all, mine);
  if (!lines_) return;
  const BatchGeometry geometry = batch_geometry(experiment_.spec);
  const int64_t slots = losses.numel();
  // [process, micro-batch, slot, sample] -> [worker and replica, micro-batch and sample]
  const at::Tensor by_slot = all.cpu()
                                 .view({comm_.size(), geometry.accumulate_steps, slots, geometry.batch_size})
                                 .transpose(1, 2)
                                 .reshape({comm_.size() * slots, -1})
                                 .contiguous();  // reshape may return a strided view
  for (int64_t i = 0; i < by_slot.size(0); ++i) {
    const int64_t* first = by_slot[i].const_data_ptr<int64_t>();
    lines_->append(TraceRecord{.step = step + 1,
                               .worker = i / geometry.replicas,
                               .replica = i % geometry.replicas,
                               .loss = all_losses[static_cast<size_t>(i)],
                               .samples = {first, first + by_slot.size(1)}});
  }
}

StepWatch::StepWatch(const Logger& log, const Communicator& comm) : log_(log), comm_(comm) {
  if (comm.rank() == 0) thread_ = std::thread([this] { watch(); });
}

StepWatch::~StepWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StepWatch::begin(int64_t step) {
  const std::lock_guard lock(mutex_);
  running_ = Running{.step = step, .began = Clock::now(), .next = std::chrono::seconds(10)};
}

void StepWatch::end() {
  const std::lock_guard lock(mutex_);
  running_.reset();
}

void StepWatch::watch() {
  std::unique_lock lock(mutex_);
  // Steps begin and end often, so the thread looks at the time instead of being woken by them.
  while (!ends_.wait_for(lock, std::chrono::seconds(1), [this] { return is_over_; })) {
    if (!running_ || Clock::now() - running_->began < running_->next) continue;
    const std::string place = comm_.place();
    const std::string text = fmt::format("step {} is running: {} s so far ({})", running_->step,
                                         running_->next.count(), place.empty() ? "computing" : place);
    write_line(text);
    try {
      log_.record(text);
    } catch (const std::exception&) {
      // The training thread's next line fails, too, and ends the run.
    }
    running_->next *= 2;
  }
}

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
