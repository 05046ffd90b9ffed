#include "hub/library_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_keys.h"
#include "engine/finite.h"
#include "io/file.h"
#include "io/glob.h"
#include "spec/error.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kOnlyName = "model.safetensors";

std::vector<fs::path> files_of_index(const fs::path& index) {
  const auto json = nlohmann::json::parse(read_text(index), nullptr, /*allow_exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  std::set<fs::path> names;
  if (json.is_object() && map != json.end() && map->is_object())
    for (const auto& [tensor, file] : map->items())
      if (file.is_string() && !fs::path(file.get<std::string>()).has_parent_path())
        names.insert(file.get<std::string>());
  if (names.empty())
    throw DataError(fmt::format("{}: expected a JSON object whose weight_map names the files of the tensors",
                                index.string()));
  std::vector<fs::path> files;
  for (const fs::path& name : names)
    files.push_back(index.parent_path() / name);
  return files;
}

/// torch.save writes a zip archive; old versions wrote a pickle.
void refuse_pickle(const fs::path& path) {
  const MappedFile file(path);
  const auto begins_with = [&](std::initializer_list<int> bytes) {
    return file.bytes().size() >= bytes.size() &&
           std::equal(bytes.begin(), bytes.end(), file.bytes().begin(),
                      [](int expected, std::byte found) { return std::to_integer<int>(found) == expected; });
  };
  if (!begins_with({'P', 'K', 3, 4}) && !begins_with({0x80, 0x02})) return;
  throw DataError(
      fmt::format("{0}: written by torch.save, expected safetensors. Convert it: python3 -c \"import torch, "
                  "safetensors.torch as s; t = torch.load('{0}', map_location='cpu', weights_only=True); "
                  "s.save_file({{k: v.contiguous() for k, v in t.items()}}, 'model.safetensors')\"",
                  path.string()));
}

fs::path only_file_of(const fs::path& folder) {
  const std::vector<fs::path> files = files_matching(folder, "*.safetensors");
  if (files.size() == 1) return files.front();
  for (const char* pattern : {"*.bin", "*.pth", "*.pt"})
    for (const fs::path& file : files_matching(folder, pattern))
      refuse_pickle(file);
  throw DataError(fmt::format("{}: has {} safetensors files, but neither {} nor {}. Give the path of a file.",
                              folder.string(), files.size(), kIndexName, kOnlyName));
}

}  // namespace

std::vector<fs::path> library_files(const fs::path& from) {
  std::error_code ignored;
  if (!fs::is_directory(from, ignored)) {
    if (from.extension() == ".json") return files_of_index(from);
    refuse_pickle(from);
    return {from};
  }
  if (fs::exists(from / kIndexName, ignored)) return files_of_index(from / kIndexName);
  return {fs::exists(from / kOnlyName, ignored) ? from / kOnlyName : only_file_of(from)};
}

LibraryTensors::LibraryTensors(const fs::path& from, const ModelLayout& layout,
                               std::unique_ptr<LibraryFormat> format, at::ScalarType type)
    : from_(from), format_(std::move(format)), type_(type) {
  for (const fs::path& path : library_files(from))
    files_.emplace_back(path);
  std::vector<std::string> problems;
  const auto check = [&](const auto& tensor) {
    if (const TensorView* const view = find(tensor.name)) used_.insert(view->entry.name);
    if (std::string problem = problem_of(tensor.name, tensor.shape); !problem.empty())
      problems.push_back(std::move(problem));
  };
  for (const ParameterLayout& parameter : layout.parameters)
    check(parameter);
  for (const BufferLayout& buffer : layout.buffers)
    check(buffer);
  if (problems.empty()) problems = check_repeated();
  if (problems.empty()) return;
  constexpr size_t kMostShown = 10;
  const size_t more = problems.size() - std::min(problems.size(), kMostShown);
  problems.resize(problems.size() - more);
  throw DataError(fmt::format(
      "{}: does not fit the model of the spec:\n  {}{}\nIs it another model, or one with other "
      "sizes? Change `model` to match the file.",
      from.string(), fmt::join(problems, "\n  "), more > 0 ? fmt::format("\n  and {} more", more) : ""));
}

std::vector<std::string> LibraryTensors::check_repeated() {
  std::vector<std::string> problems;
  if (!format_) return problems;
  for (const SafetensorsFile& file : files_)
    for (const TensorView& view : file.entries()) {
      const std::string& name = view.entry.name;
      const std::string parameter(format_->repeated_by(name));
      if (parameter.empty()) continue;
      used_.insert(name);
      if (!at::equal(as_tensor(view).to(type_), read(parameter)))
        problems.push_back(
            fmt::format("{} differs from {}, expected the same tensor (tied)", name, parameter));
    }
  return problems;
}

const TensorView* LibraryTensors::find(const std::string& name) const {
  const std::string_view prefix = format_ ? format_->optional_prefix() : "";
  const bool has_short_name = !prefix.empty() && name.starts_with(prefix);
  for (const SafetensorsFile& file : files_) {
    if (const TensorView* const view = file.find(name)) return view;
    const TensorView* const view = has_short_name ? file.find(name.substr(prefix.size())) : nullptr;
    if (view) return view;
  }
  return nullptr;
}

std::string LibraryTensors::problem_of(const std::string& name, const std::vector<int64_t>& shape) const {
  const TensorView* const view = find(name);
  if (!view) return fmt::format("no tensor {}, expected one of shape [{}]", name, fmt::join(shape, ", "));
  const TensorEntry& entry = view->entry;
  if (entry.shape != shape)
    return fmt::format("{} has shape [{}], expected [{}]", name, fmt::join(entry.shape, ", "),
                       fmt::join(shape, ", "));
  if (!at::isFloatingType(scalar_type_of(entry.dtype)))
    return fmt::format("{} is of type {}, expected a floating-point type", name, dtype_name(entry.dtype));
  if (!is_finite(read(name)))
    return fmt::format("{} has values that are not finite (NaN or infinity) as {}", name,
                       dtype_name(dtype_of(type_)));
  return "";
}

at::Tensor LibraryTensors::read(const std::string& name) const {
  return as_tensor(*find(name)).to(type_);
}

std::vector<std::string> LibraryTensors::unused(const std::map<std::string, at::Tensor>& made_anew) const {
  std::vector<std::string> names;
  for (const SafetensorsFile& file : files_)
    for (const TensorView& view : file.entries())
      if (!used_.contains(view.entry.name) && !made_anew.contains(view.entry.name) &&
          !(format_ && format_->is_redundant(view.entry.name)))
        names.push_back(view.entry.name);
  return names;
}

int64_t LibraryTensors::batch_norm_updates() const {
  for (const SafetensorsFile& file : files_)
    for (const TensorView& view : file.entries()) {
      const TensorEntry& entry = view.entry;
      if (!entry.name.ends_with(".num_batches_tracked")) continue;
      const bool is_one = entry.dtype == DType::kI64 && entry.bytes() == element_bytes(DType::kI64);
      if (!is_one)
        throw DataError(fmt::format("{}: {} is of type {} and shape [{}], expected one number of type I64",
                                    from_.string(), entry.name, dtype_name(entry.dtype),
                                    fmt::join(entry.shape, ", ")));
      const auto count = as_tensor(view).item<int64_t>();
      if (count < 0)
        throw DataError(fmt::format("{}: {} is {}, expected a count", from_.string(), entry.name, count));
      return count;
    }
  return 0;
}

}  // namespace sdp
