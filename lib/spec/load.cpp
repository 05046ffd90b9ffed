#include "spec/load.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "spec/error.h"
#include "spec/position.h"
#include "spec/read.h"
#include "spec/yaml_tree.h"

namespace sdp {
namespace {

std::string read_text(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw UsageError(file.string() + ": found a folder, expected a YAML file");
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.good() && !stream.eof())
    throw UsageError(file.string() + ": can't be read (" + std::strerror(errno) + "), expected a YAML file");
  return text;
}

/// "a.b=v" as the tree that the file "a: {b: v}" would give, every node placed at the override.
YamlNode parse_override(const std::string& assignment) {
  const Position position{.source = "--set " + assignment};
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0)
    fail_at(position, "", "expected key=value, as optimizer.lr=0.2");

  YamlNode node = parse_yaml(assignment.substr(equals + 1), position);
  std::string path = assignment.substr(0, equals);
  while (!path.empty()) {
    const size_t dot = path.rfind('.');
    YamlNode key;
    key.kind = YamlNode::Kind::kScalar;
    key.position = position;
    key.text = dot == std::string::npos ? path : path.substr(dot + 1);
    if (key.text.empty() || dot == 0) fail_at(position, "", "expected key=value with a key as optimizer.lr");

    YamlNode mapping;
    mapping.kind = YamlNode::Kind::kMapping;
    mapping.position = position;
    mapping.keys.push_back(std::move(key));
    mapping.items.push_back(std::move(node));
    node = std::move(mapping);
    path.resize(dot == std::string::npos ? 0 : dot);
  }
  return node;
}

struct Source {
  std::string name;
  std::string text;
};

LoadedSpec load_sources(const std::vector<Source>& sources, const std::vector<std::string>& overrides,
                        NamedFiles named_files) {
  LoadedSpec loaded;
  Positions positions;
  for (const auto& [name, text] : sources)
    read_into(loaded.spec, parse_yaml(text, {.source = name, .line = 1, .column = 1}), positions);
  for (const std::string& assignment : overrides)
    read_into(loaded.spec, parse_override(assignment), positions);

  check_required_keys(positions);
  check_across_keys(loaded.spec, positions, named_files);
  loaded.warnings = find_warnings(loaded.spec, positions);
  resolve(loaded.spec);
  return loaded;
}

}  // namespace

LoadedSpec load_spec(const std::vector<std::filesystem::path>& files,
                     const std::vector<std::string>& overrides, NamedFiles named_files) {
  if (files.empty()) throw UsageError("no spec was given, expected at least one YAML file (--config FILE)");
  std::vector<Source> sources;
  sources.reserve(files.size());
  for (const auto& file : files)
    sources.push_back({file.string(), read_text(file)});
  return load_sources(sources, overrides, named_files);
}

LoadedSpec parse_spec(const std::string& text, const std::string& source_name,
                      const std::vector<std::string>& overrides, NamedFiles named_files) {
  return load_sources({{source_name, text}}, overrides, named_files);
}

}  // namespace sdp
