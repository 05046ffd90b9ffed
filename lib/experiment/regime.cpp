#include "experiment/regime.h"

#include <algorithm>
#include <cctype>

#include "spec/text.h"
#include "spec/value_text.h"

namespace sdp {
namespace {

bool is_of_word(char character) {
  return std::isalnum(static_cast<unsigned char>(character)) != 0 || character == '-' || character == '_';
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const auto* const first = std::find_if(text.begin() + begin, text.end(), is_of_word);
    const auto* const last = std::find_if_not(first, text.end(), is_of_word);
    if (first != last) words.emplace_back(first, last);
    begin = static_cast<size_t>(last - text.begin());
  }
  return words;
}

/// All names that method_of may give, and those of methods that this program does not have.
std::vector<std::string> all_methods() {
  std::vector<std::string> methods = {"DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "FSDP"};
  for (const Regime regime : all_regimes())
    methods.push_back(method_name(regime));
  return methods;
}

}  // namespace

const std::vector<Regime>& all_regimes() {
  static const std::vector<Regime> regimes{{Construction::kNeuron, Masking::kForward},
                                           {Construction::kBlock, Masking::kForward},
                                           {Construction::kBlock, Masking::kBackward},
                                           {Construction::kNeuron, Masking::kBackward}};
  return regimes;
}

std::string name_of(Regime regime) {
  std::string construction = regime.construction == Construction::kBlock ? "b" : "n";
  return construction.append(rule_of(regime.masking).name_suffix);
}

std::string method_name(Regime regime) {
  std::string construction = regime.construction == Construction::kBlock ? "B" : "N";
  return construction.append(rule_of(regime.masking).label_suffix);
}

Regime regime_of(const SubnetworkSpec& spec) {
  return {spec.construction, spec.masking};
}

std::string method_of(const ExperimentSpec& spec) {
  if (spec.exchange.is_local()) {
    if (!spec.subnetwork.is_dense()) return method_name(regime_of(spec.subnetwork)) + ", local steps";
    return spec.exchange.outer.momentum > 0 ? "DiLoCo" : "local SGD";
  }
  if (!spec.subnetwork.is_dense()) return method_name(regime_of(spec.subnetwork));
  if (!spec.optimizer.shard) return "DDP";
  // Gradients that are accumulated over micro-batches are kept in full on every process.
  const bool adds_up = spec.train.accumulate_steps > 1 && spec.train.reduce_every == ReduceEvery::kStep;
  return spec.train.release_gradients && !adds_up ? "ZeRO-2" : "ZeRO-1";
}

std::string method_settings(const ExperimentSpec& spec) {
  std::string coverage = "subnetwork.coverage " + spec.subnetwork.coverage.text;
  if (!spec.subnetwork.capacities.empty())
    coverage = "subnetwork.capacities " + yaml_text(spec.subnetwork.capacities);
  if (!spec.subnetwork.rules.empty()) coverage += ", subnetwork.rules " + yaml_text(spec.subnetwork.rules);
  if (!spec.subnetwork.is_dense()) return coverage;
  return coverage + ", optimizer.shard " + yaml_text(spec.optimizer.shard) + ", train.release_gradients " +
         yaml_text(spec.train.release_gradients);
}

std::optional<std::string> contradicted_method(std::string_view label, const ExperimentSpec& spec) {
  const std::vector<std::string> own = {method_of(spec), method_name(regime_of(spec.subnetwork))};
  for (const std::string& word : words_of(label))
    for (const std::string& method : all_methods())
      if (lower_case(word) == lower_case(method) && std::find(own.begin(), own.end(), method) == own.end())
        return method;
  return std::nullopt;
}

}  // namespace sdp
