#include "hub/library_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/checks.h"
#include "io/file.h"
#include "run/checkpoint_tensors.h"
#include "spec/error.h"
#include "spec/text.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kOnlyName = "model.safetensors";

std::vector<fs::path> files_of_index(const fs::path& index) {
  const auto json = read_json_object(index);
  const auto map = json.find("weight_map");
  std::set<fs::path> names;
  if (map != json.end() && map->is_object())
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
bool is_pickle(const fs::path& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  return text.starts_with("PK\3\4") || text.starts_with("\x80\2");
}

/// The command takes the dictionary with the most tensors, as weights often stand among other state, and
/// copies each, as tied weights share memory. If --from is a folder, its file is found there.
[[noreturn]] void refuse_pickles(const std::vector<fs::path>& paths) {
  fs::path converted = paths.front();
  converted.replace_extension(".safetensors");
  std::string words = shell_word(converted.string());
  for (const fs::path& path : paths)
    words += fmt::format(" {}", shell_word(path.string()));
  throw DataError(fmt::format(
      "{}: written by torch.save, expected safetensors. Convert it: python3 -c \"import sys, torch, "
      "safetensors.torch; t = {{}}; [t.update(torch.load(f, map_location='cpu', weights_only=True)) for f in "
      "sys.argv[2:]]; t = max([t, *(v for v in t.values() if isinstance(v, dict))], key=lambda d: "
      "sum(map(torch.is_tensor, d.values()))); safetensors.torch.save_file({{k: v.clone().contiguous() "
      "for k, v in t.items() if torch.is_tensor(v)}}, sys.argv[1])\" {}",
      paths.front().string(), words));
}

/// The only safetensors file; otherwise what torch.save may have written.
std::vector<fs::path> files_of_folder(const fs::path& folder) {
  const std::vector<fs::path> files = files_matching(folder, "*.safetensors");
  if (files.size() == 1) return files;
  if (std::vector<fs::path> parts = files_matching(folder, "*-of-*.bin"); !parts.empty()) return parts;
  for (const char* pattern : {"pytorch_model.bin", "*.bin", "*.pth", "*.pt"})
    if (const std::vector<fs::path> found = files_matching(folder, pattern); !found.empty())
      return {found.front()};
  throw DataError(fmt::format("{}: has {} safetensors files, but neither {} nor {}. Give the path of a file.",
                              folder.string(), files.size(), kIndexName, kOnlyName));
}

/// See LibraryTensors::wrapper. `names`: those that a parameter of the layout may have. Names of others may
/// end like one of them, but none that is shorter.
std::string wrapper_of(const std::vector<SafetensorsFile>& files, std::initializer_list<std::string> names) {
  std::optional<std::string> shortest;
  for (const SafetensorsFile& file : files)
    for (const TensorView& view : file.entries())
      for (const std::string& name : names) {
        const std::string& found = view.entry.name;
        if (!("." + found).ends_with("." + name)) continue;
        std::string wrapper = found.substr(0, found.size() - name.size());
        if (!shortest || wrapper.size() < shortest->size()) shortest = std::move(wrapper);
      }
  return shortest.value_or("");
}

}  // namespace

fs::path config_beside(const fs::path& from) {
  std::error_code ignored;
  return (fs::is_directory(from, ignored) ? from : from.parent_path()) / "config.json";
}

nlohmann::ordered_json read_json_object(const fs::path& path) {
  auto json = nlohmann::ordered_json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw DataError(fmt::format("{}: is not a JSON object", path.string()));
  return json;
}

std::vector<fs::path> library_files(const fs::path& from) {
  std::error_code ignored;
  std::vector<fs::path> files = {from};
  if (from.extension() == ".json" && !fs::is_directory(from, ignored))
    files = files_of_index(from);
  else if (fs::exists(from / kIndexName, ignored))
    files = files_of_index(from / kIndexName);
  else if (fs::exists(from / kOnlyName, ignored))
    files = {from / kOnlyName};
  else if (fs::is_directory(from, ignored))
    files = files_of_folder(from);
  if (is_pickle(files.front())) refuse_pickles(files);
  return files;
}

LibraryTensors::LibraryTensors(const fs::path& from, const ModelLayout& layout,
                               std::unique_ptr<LibraryFormat> format, at::ScalarType type,
                               const std::map<std::string, at::Tensor>& made_anew, std::set<std::string> head,
                               bool reads_head)
    : from_(from), format_(std::move(format)), type_(type), head_(std::move(head)), reads_head_(reads_head) {
  for (const fs::path& path : library_files(from))
    files_.emplace_back(path);
  const auto body =
      std::ranges::find_if(layout.parameters, [&](const auto& p) { return !head_.contains(p.name); });
  const size_t prefix = format_ ? format_->optional_prefix().size() : 0;
  wrapper_ = wrapper_of(files_, {body->name, body->name.substr(prefix)});
  std::set<std::string> used;  // names in the files
  std::vector<std::string> problems;
  bool only_the_head_differs = true;
  const auto check = [&](const auto& tensor) {
    if (const TensorView* const view = find(tensor.name)) used.insert(view->entry.name);
    if (!has(tensor.name)) return;
    std::string problem = problem_of(tensor.name, tensor.shape);
    if (problem.empty()) return;
    problems.push_back(std::move(problem));
    only_the_head_differs = only_the_head_differs && head_.contains(tensor.name);
  };
  for (const ParameterLayout& parameter : layout.parameters)
    check(parameter);
  for (const BufferLayout& buffer : layout.buffers)
    check(buffer);
  if (problems.empty()) {
    problems = check_others(used, made_anew);
    only_the_head_differs = false;
  }
  if (problems.empty()) return;
  constexpr size_t kMostShown = 10;
  const size_t more = problems.size() - std::min(problems.size(), kMostShown);
  problems.resize(problems.size() - more);
  throw DataError(fmt::format(
      "{}: does not fit the model of the spec:\n  {}{}\nIs it another model, or one with other "
      "sizes? Change `model` to match the file. Remove tensors that are not the model's from the file.{}",
      from.string(), fmt::join(problems, "\n  "), more > 0 ? fmt::format("\n  and {} more", more) : "",
      only_the_head_differs ? " To train it on other classes or tokens, --new-head draws the head anew."
                            : ""));
}

std::vector<std::string> LibraryTensors::check_others(
    const std::set<std::string>& used, const std::map<std::string, at::Tensor>& made_anew) const {
  std::vector<std::string> problems;
  for (const SafetensorsFile& file : files_)
    for (const TensorView& view : file.entries()) {
      if (used.contains(view.entry.name)) continue;
      const bool is_wrapped = view.entry.name.starts_with(wrapper_);
      const std::string name = view.entry.name.substr(is_wrapped ? wrapper_.size() : 0);
      const std::string parameter(format_ ? format_->repeated_by(name) : "");
      if (parameter.empty()) {
        if (!made_anew.contains(name) && !(format_ && format_->is_redundant(name)))
          problems.push_back(fmt::format("{} is not a tensor of the model and would be lost", name));
      } else if (has(parameter) && !at::equal(as_tensor(view).to(type_), read(parameter))) {
        problems.push_back(fmt::format(
            "{} differs from {}, expected the same tensor, as they are tied (where the model has the option, "
            "model.tied_embeddings=false gives it both; a config.json must then have tie_word_embeddings: "
            "false)",
            name, parameter));
      }
    }
  return problems;
}

const TensorView* LibraryTensors::find(const std::string& name) const {
  const std::string_view prefix = format_ ? format_->optional_prefix() : "";
  const bool has_short_name = !prefix.empty() && name.starts_with(prefix);
  for (const SafetensorsFile& file : files_) {
    if (const TensorView* const view = file.find(wrapper_ + name)) return view;
    const TensorView* const view =
        has_short_name ? file.find(wrapper_ + name.substr(prefix.size())) : nullptr;
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

LibraryConstants library_tensors(const ModelSpec& spec, const ModelLayout& layout,
                                 int64_t batch_norm_updates) {
  constexpr std::string_view kRunningMean = ".running_mean";
  LibraryConstants tensors =
      spec.kind.visit([&](const auto& model) { return library_constants(model, layout); });
  for (const BufferLayout& buffer : layout.buffers)
    if (buffer.name.ends_with(kRunningMean))
      tensors[buffer.name.substr(0, buffer.name.size() - kRunningMean.size()) + ".num_batches_tracked"] =
          at::full({}, batch_norm_updates, at::kLong);
  return tensors;
}

}  // namespace sdp
