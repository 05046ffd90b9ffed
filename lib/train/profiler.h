#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>

namespace sdp {

/// Records some steps of this process: every operator and, on CUDA, every kernel and exchange, in Chrome's
/// trace format (chrome://tracing, ui.perfetto.dev).
class StepProfiler {
 public:
  /// Records `steps` steps, beginning with the sixth after `first_step`, when caches and allocators have
  /// settled; 0: none. The file is written after the last of them, or on destruction.
  StepProfiler(int64_t first_step, int64_t steps, c10::Device device, std::filesystem::path file);
  ~StepProfiler();
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void before_step(int64_t step);
  void after_step(int64_t step);

 private:
  void write();

  const int64_t begin_, end_;
  const c10::Device device_;
  const std::filesystem::path file_;
  bool is_recording_ = false;
};

}  // namespace sdp
