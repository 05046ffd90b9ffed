#include "run/checkpoint_reader.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "engine/checks.h"
#include "spec/error.h"
#include "spec/hash.h"

namespace sdp {
namespace {

at::Tensor submatrix(const at::Tensor& flat, const StateOverlap& overlap, int64_t offset, int64_t stride) {
  return flat.as_strided({overlap.rows, overlap.columns}, {stride, 1}, flat.storage_offset() + offset);
}

}  // namespace

CheckpointReader::CheckpointReader(const std::filesystem::path& run_dir, std::optional<int64_t> step,
                                   bool verify_hashes, const OnProgress& on_progress) {
  const CheckpointStore store(run_dir);
  if (!step) step = store.latest_step();
  if (!step)
    throw DataError(fmt::format("{}: no checkpoint in this run folder. Train first, or give another folder.",
                                run_dir.string()));
  manifest_ = store.read(*step, verify_hashes, on_progress);
  folder_ = store.folder(*step);
  for (int64_t process = 0; process < manifest_.processes; ++process) {
    const std::filesystem::path path = folder_ / manifest_.files[static_cast<size_t>(process)].name;
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    index_file(static_cast<int>(process));
  }
}

void CheckpointReader::index_file(int process) {
  for (const TensorView& view : files_.back()->entries()) {
    const std::string& name = view.entry.name;
    const auto& [key, begin, end] = parse_name(name);
    if (key.kind == kBufferKind) {
      buffers_[{key, Slot{static_cast<int>(begin), static_cast<int>(end)}}] = &view;
      continue;
    }
    if (begin < 0 || end - begin != view.entry.bytes() / element_bytes(view.entry.dtype))
      throw DataError((folder_ / manifest_.files[static_cast<size_t>(process)].name).string() + ": tensor " +
                      name + " does not have the size that its name states");
    ranges_[{key.kind, key.parameter}].push_back({key.hidden_begin, key.hidden_end, begin, end, &view});
  }
}

/// Calls visit(saved elements, as a matrix; where they are in the range).
template <class Visit>
int64_t CheckpointReader::visit_overlaps(const SubnetPlan& plan, const StateRange& range, Visit visit) const {
  const StateKey key = key_of(plan, range);
  const auto found = ranges_.find({key.kind, key.parameter});
  int64_t missing = range.end - range.begin;
  if (found == ranges_.end()) return missing;
  const StateMatrix matrix = matrix_of(plan.layout, plan.layout.parameters[range.parameter]);
  const StateSpan wanted = span_of(matrix, key.hidden_begin, key.hidden_end, range.begin, range.end);
  for (const SavedRange& saved : found->second) {
    const StateSpan span = span_of(matrix, saved.hidden_begin, saved.hidden_end, saved.begin, saved.end);
    for (const StateOverlap& overlap : overlaps(span, wanted)) {
      const at::Tensor values =
          submatrix(as_tensor(*saved.view), overlap, overlap.from_offset, overlap.from_stride);
      require_finite(values, saved.view->entry.name);
      visit(values, overlap);
      missing -= overlap.elements();
    }
  }
  return missing;
}

void CheckpointReader::read(const SubnetPlan& plan, const StateRange& range) const {
  const int64_t missing = visit_overlaps(plan, range, [&](const auto& values, const StateOverlap& overlap) {
    submatrix(range.values, overlap, overlap.to_offset, overlap.to_stride).copy_(values);
  });
  if (missing != 0)
    throw DataError(
        fmt::format("{}: {} elements of {} are missing. The checkpoint belongs to another model or is "
                    "damaged.",
                    folder_.string(), missing, range_name(key_of(plan, range), range.begin, range.end)));
}

void CheckpointReader::read_mean(const SubnetPlan& plan, const StateRange& range) const {
  const at::Tensor sum = at::zeros({range.values.numel()}, at::kDouble);
  const at::Tensor count = at::zeros_like(sum);
  for (int worker = 0; worker < manifest_.workers; ++worker) {
    StateRange of_worker = range;
    of_worker.worker = worker;
    visit_overlaps(plan, of_worker, [&](const auto& values, const StateOverlap& overlap) {
      submatrix(sum, overlap, overlap.to_offset, overlap.to_stride).add_(values);
      submatrix(count, overlap, overlap.to_offset, overlap.to_stride).add_(1);
    });
  }
  if (count.eq(0).any().item<bool>())
    throw DataError(fmt::format("{}: no worker has all elements of {}. The checkpoint is damaged.",
                                folder_.string(), range_name(key_of(plan, range), range.begin, range.end)));
  range.values.copy_(sum.div_(count));
}

bool CheckpointReader::has(const std::string& kind) const {
  const auto first = ranges_.lower_bound({kind, ""});
  return first != ranges_.end() && first->first.first == kind;
}

at::Tensor CheckpointReader::buffer(const SubnetPlan& plan, int buffer, int unit, Slot slot) const {
  const StateKey key = buffer_key(plan, buffer, unit);
  const auto found = buffers_.find({key, slot});
  if (found == buffers_.end()) throw DataError("the checkpoint has no buffer " + buffer_name(key, slot));
  const at::Tensor saved = as_tensor(*found->second);
  require_finite(saved, found->second->entry.name);
  return saved;
}

void CheckpointReader::require_finite(const at::Tensor& values, const std::string& name) const {
  if (!is_finite(values))
    throw DataError(
        fmt::format("{}: tensor {} has values that are not finite (NaN or infinity). Use an "
                    "earlier checkpoint.",
                    folder_.string(), name));
}

std::string CheckpointReader::identity() const {
  return fmt::format("step {}, {}", manifest_.step, xxh3_128(manifest_text(manifest_)));
}

}  // namespace sdp
