#include "train/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <new>

#include "device/device.h"
#include "device/library_workspace.h"
#include "memory/allocations.h"
#include "text/units.h"

namespace sdp {
namespace {

/// The first line of the message, without the stack trace.
std::string reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_torch ? of_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

std::string kinds_text(const MemoryByKind& memory) {
  std::string text;
  for (const MemoryKindInfo& kind : kMemoryKinds)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind.name, format_bytes(memory.*kind.bytes));
  return text;
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) || dynamic_cast<const std::bad_alloc*>(&error))
    return true;
  // LibTorch's CPU allocator has no exception type of its own for this.
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch &&
         std::string(of_torch->what_without_backtrace()).find("can't allocate memory") != std::string::npos;
}

std::string describe_out_of_memory(const std::exception& error, int rank, int64_t planned_bytes,
                                   c10::Device device) {
  const MemoryByKind most = allocated_at_peak();
  return fmt::format(
      "Rank {} is out of memory on {} of {}: {}. Its tensors reached {} ({}), in addition to {} of cuBLAS's "
      "workspace; the plan predicts {} of tensors at the peak of a step. To reduce memory, use a smaller "
      "train.batch_size_per_worker with more train.accumulate_steps, train.checkpoint_activations: true, a "
      "lower subnetwork.coverage or fewer workers per process; `sdp-train plan` prints the memory.",
      rank, device_name(device), format_bytes(device_memory_bytes(device)), reason_of(error),
      format_bytes(most.total()), kinds_text(most), format_bytes(library_workspace_bytes(device)),
      format_bytes(planned_bytes));
}

}  // namespace sdp
