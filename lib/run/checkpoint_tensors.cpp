#include "run/checkpoint_tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "spec/error.h"
#include "spec/text.h"

namespace sdp {
namespace {

constexpr std::array kTypes = {std::pair{DType::kF64, at::kDouble},    std::pair{DType::kF32, at::kFloat},
                               std::pair{DType::kBF16, at::kBFloat16}, std::pair{DType::kF16, at::kHalf},
                               std::pair{DType::kI64, at::kLong},      std::pair{DType::kI32, at::kInt},
                               std::pair{DType::kU8, at::kByte},       std::pair{DType::kBool, at::kBool}};

/// "a:b" -> a, b
std::pair<int64_t, int64_t> parse_range(std::string_view text, const std::string& name) {
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    const auto first = number_in<int64_t>(text.substr(0, colon));
    const auto second = number_in<int64_t>(text.substr(colon + 1));
    if (first && second) return {*first, *second};
  }
  throw DataError(fmt::format("checkpoint tensor {}: expected kind|parameter|begin:end|begin:end", name));
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t bar = text.find('|');
    parts.push_back(text.substr(0, bar));
    if (bar == std::string_view::npos) return parts;
    text.remove_prefix(bar + 1);
  }
}

}  // namespace

std::string kind_of(const std::string& kind, int worker) {
  return worker == kAllWorkers ? kind : fmt::format("{}@{}", kind, worker);
}

StateKey key_of(const SubnetPlan& plan, const std::string& kind, const std::string& name, int unit) {
  StateKey key{.kind = kind, .parameter = name};
  if (unit != kSharedUnit) {
    key.hidden_begin = plan.units[unit].begin;
    key.hidden_end = plan.units[unit].end;
  }
  return key;
}

StateKey key_of(const SubnetPlan& plan, const StateRange& range) {
  return key_of(plan, kind_of(range.kind, range.worker), plan.layout.parameters[range.parameter].name,
                range.unit);
}

StateKey buffer_key(const SubnetPlan& plan, int buffer, int unit) {
  return key_of(plan, kBufferKind, plan.layout.buffers[buffer].name, unit);
}

std::string range_name(const StateKey& key, int64_t begin, int64_t end) {
  return fmt::format("{}|{}|{}:{}|{}:{}", key.kind, key.parameter, key.hidden_begin, key.hidden_end, begin,
                     end);
}

std::string buffer_name(const StateKey& key, Slot slot) {
  return range_name(key, slot.worker, slot.replica);
}

ParsedName parse_name(const std::string& name) {
  const std::vector<std::string_view> parts = split(name);
  if (parts.size() != 4) throw DataError(fmt::format("checkpoint: unexpected tensor {}", name));
  const auto [hidden_begin, hidden_end] = parse_range(parts[2], name);
  const auto [first, second] = parse_range(parts[3], name);
  return {{std::string(parts[0]), std::string(parts[1]), hidden_begin, hidden_end}, first, second};
}

DType dtype_of(at::ScalarType type) {
  for (const auto& [dtype, torch_type] : kTypes)
    if (torch_type == type) return dtype;
  throw std::logic_error("no tensor of this type is saved");
}

at::ScalarType scalar_type_of(DType type) {
  for (const auto& [dtype, torch_type] : kTypes)
    if (dtype == type) return torch_type;
  throw std::logic_error("unknown type");
}

at::Tensor as_tensor(const TensorView& view) {
  return at::from_blob(const_cast<std::byte*>(view.data.data()), view.entry.shape,
                       scalar_type_of(view.entry.dtype));
}

void TensorFile::add(const std::string& name, DType type, std::vector<int64_t> shape,
                     std::function<at::Tensor()> source) {
  entries_.push_back({name, type, std::move(shape)});
  sources_[name] = std::move(source);
}

FileDigest TensorFile::write(const std::filesystem::path& path, const TensorMetadata& metadata,
                             const OnProgress& on_progress) {
  sort_for_writing(entries_);
  SafetensorsWriter writer(path, entries_, metadata);
  int64_t total_bytes = 0;
  for (const TensorEntry& entry : entries_)
    total_bytes += entry.bytes();
  int64_t done_bytes = 0;
  for (const TensorEntry& entry : entries_) {
    const at::Tensor host = sources_.at(entry.name)().to(at::kCPU).contiguous();
    writer.write(std::span(static_cast<const std::byte*>(host.data_ptr()), host.nbytes()));
    done_bytes += entry.bytes();
    on_progress(done_bytes, total_bytes);
  }
  return writer.finish();
}

}  // namespace sdp
