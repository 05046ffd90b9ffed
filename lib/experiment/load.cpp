#include "experiment/load.h"

#include <algorithm>
#include <utility>

#include "optim/registry.h"
#include "spec/error.h"
#include "spec/read.h"
#include "spec/text.h"
#include "spec/yaml_tree.h"

namespace sdp {
namespace {

/// "a.b=v" as the tree of the file "a: {b: v}", with v as it is typed. The position of every node is the
/// override.
YamlNode parse_override(const std::string& assignment) {
  const Position position{.source = "--set " + shortened(assignment)};
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || !is_dotted_key(assignment.substr(0, equals)))
    fail_at(position, "", "expected key=value, such as optimizer.lr=0.2");

  return nested(assignment.substr(0, equals), parse_typed_value(assignment.substr(equals + 1), position),
                position);
}

/// Refuses a file for `sdp-train sweep`, which is not an experiment.
void refuse_sweep(const YamlNode& tree) {
  for (const std::string_view key : {"grid", "also"})
    if (find_key(tree, key))
      fail_at(tree.position, std::string(key),
              "found a sweep, expected an experiment. To run a sweep: sdp-train sweep --config " +
                  shell_word(tree.position.source));
}

constexpr const char* kBase = "base";

/// A file that another one is based on.
struct Base {
  std::filesystem::path file;
  Position named_at;
};

/// Removes the key `base` from a file's tree. Returns the files that it names, in the order in which they are
/// read before this file.
std::vector<Base> take_bases(YamlNode& tree, const std::filesystem::path& file) {
  std::vector<Base> bases;
  for (size_t i = 0; i < tree.keys.size();) {
    if (tree.keys[i].text != kBase) {
      ++i;
      continue;
    }
    const bool is_list = tree.items[i].kind == YamlNode::Kind::kList;
    const std::vector<YamlNode> names = is_list ? tree.items[i].items : std::vector{tree.items[i]};
    const bool are_names = std::all_of(names.begin(), names.end(), [](const YamlNode& name) {
      return name.kind == YamlNode::Kind::kScalar && !name.text.empty();
    });
    if (!are_names || names.empty() || !bases.empty())
      fail_at(tree.keys[i].position, kBase,
              "expected the name of a YAML file, or a list of such names, relative to this file");
    for (const YamlNode& name : names)
      bases.push_back({.file = file.parent_path() / name.text, .named_at = name.position});
    tree.keys.erase(tree.keys.begin() + static_cast<std::ptrdiff_t>(i));
    tree.items.erase(tree.items.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return bases;
}

/// Appends the trees of a file and of all files that it is based on, the innermost base first. `above` is the
/// chain of files that led to this one.
void read_with_bases(const std::filesystem::path& file, std::vector<std::filesystem::path> above,
                     std::vector<YamlNode>& trees) {
  constexpr size_t kMostFiles = 256;  // a file that two others name is read twice
  YamlNode tree = read_yaml(file);
  refuse_sweep(tree);
  above.push_back(std::filesystem::weakly_canonical(file));
  for (const Base& base : take_bases(tree, file)) {
    const std::string name = shortened(base.file.string());
    std::error_code error;
    if (!std::filesystem::exists(base.file, error))
      fail_at(base.named_at, kBase,
              "found '" + name + "', which " +
                  (error ? "cannot be read (" + error.message() + ")" : "does not exist") +
                  ", expected a YAML file, relative to this file");
    const std::filesystem::path canonical = std::filesystem::weakly_canonical(base.file);
    if (std::find(above.begin(), above.end(), canonical) != above.end())
      fail_at(base.named_at, kBase,
              "found '" + name + "', which is based on this file. Remove one `base` of the cycle");
    if (above.size() + trees.size() >= kMostFiles)
      fail_at(base.named_at, kBase,
              "found '" + name + "', with which more than " + std::to_string(kMostFiles) +
                  " files are based on one another. Put their keys into fewer files");
    read_with_bases(base.file, above, trees);
  }
  trees.push_back(std::move(tree));
}

LengthFrom length_from(const Positions& positions) {
  LengthFrom from = LengthFrom::kDefault;
  for (const char* key : {"train.epochs", "train.max_steps"}) {
    if (!positions.is_set(key)) continue;
    if (positions.of(key).is_override()) return LengthFrom::kOverride;
    from = LengthFrom::kFile;
  }
  return from;
}

LoadedSpec load_trees(std::vector<YamlNode> trees, const std::vector<std::string>& overrides,
                      NamedFiles named_files) {
  LoadedSpec loaded;
  Positions& positions = loaded.positions;
  UsageErrors errors;
  ReadResults results{.positions = positions, .errors = errors, .all_keys = {}};
  add_dotted_keys<ExperimentSpec>("", results.all_keys);
  for (const std::string& assignment : overrides)
    errors.collect({.source = assignment}, "", [&] { trees.push_back(parse_override(assignment)); });
  for (const YamlNode& tree : trees)
    choose_kinds(loaded.spec, tree);
  for (const YamlNode& tree : trees)
    read_section(loaded.spec, tree, "", results);
  if (errors.concern("")) errors.throw_if_any();  // not even a mapping

  check_required<ExperimentSpec>("", positions, errors);
  check_across_keys(loaded.spec, positions, named_files, errors);
  errors.throw_if_any();
  loaded.warnings = find_warnings(loaded.spec, positions);
  loaded.length_from = length_from(positions);
  resolve(loaded.spec);
  return loaded;
}

}  // namespace

LoadedSpec load_spec(const std::vector<std::filesystem::path>& files,
                     const std::vector<std::string>& overrides, NamedFiles named_files) {
  if (files.empty()) throw UsageError("found no spec, expected at least one YAML file (--config FILE)");
  std::vector<YamlNode> trees;
  for (const auto& file : files)
    read_with_bases(file, {}, trees);
  return load_trees(std::move(trees), overrides, named_files);
}

void make_data_path_absolute(ExperimentSpec& spec) {
  spec.data.path = std::filesystem::absolute(spec.data.path).lexically_normal().string();
}

LoadedSpec load_run_spec(const std::vector<std::filesystem::path>& files,
                         const std::vector<std::string>& overrides, NamedFiles named_files) {
  LoadedSpec loaded = load_spec(files, overrides, named_files);
  make_data_path_absolute(loaded.spec);
  return loaded;
}

ExperimentSpec complete_spec(ExperimentSpec spec) {
  Positions positions;
  positions.set("", {.source = "the spec"});
  UsageErrors errors;
  check_across_keys(spec, positions, NamedFiles::kMustExist, errors);
  errors.throw_if_any();
  resolve(spec);
  make_data_path_absolute(spec);
  return spec;
}

ExperimentSpec load_saved_spec(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  try {
    load_spec({file}, {}, NamedFiles::kNotNeeded);
  } catch (const UsageError& error) {
    throw DataError(
        file.string() + ": the saved spec is damaged or was written by another version of this program (" +
        error.what() + "). Every checkpoint has a copy; resuming the run with --resume writes it again.");
  }
  return load_spec({file}, overrides, NamedFiles::kNotNeeded).spec;
}

LoadedSpec parse_spec(const std::string& text, const std::string& source_name,
                      const std::vector<std::string>& overrides, NamedFiles named_files) {
  return load_trees({parse_yaml(text, {.source = source_name, .line = 1, .column = 1})}, overrides,
                    named_files);
}

}  // namespace sdp
