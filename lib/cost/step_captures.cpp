#include "cost/step_captures.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "cost/record_step.h"
#include "cost/recorded_call.h"
#include "layers/loss.h"

namespace sdp {
namespace {

// Steps with these two batch sizes are recorded, and the bytes of other batches follow from their difference.
// Multiples of 8, because masks of bits are padded to whole bytes.
constexpr int64_t kBatch = 16;
constexpr int64_t kLargerBatch = 2 * kBatch;

CapturedCall combine(const RecordedCall& call, const RecordedCall& larger) {
  const CallCost cost = cost_of(call), of_larger = cost_of(larger);
  CapturedCall result{
      .op = call.op.name, .products = {}, .bytes = BatchSize::between(cost.bytes, of_larger.bytes, kBatch)};
  for (size_t i = 0; i < cost.products.size(); ++i) {
    const ProductSize &one = cost.products[i], &twice = of_larger.products.at(i);
    result.products.push_back({.m = BatchSize::between(one.m, twice.m, kBatch),
                               .k = BatchSize::between(one.k, twice.k, kBatch),
                               .n = BatchSize::between(one.n, twice.n, kBatch),
                               .count = BatchSize::between(one.count, twice.count, kBatch),
                               .computed = one.computed});
  }
  return result;
}

PassCapture combine(const RecordedPass& pass, const RecordedPass& larger, int first_parameter) {
  const auto is_same = [](const RecordedCall& a, const RecordedCall& b) { return a.op == b.op; };
  if (pass.events.size() != larger.events.size() || !std::ranges::equal(pass.calls, larger.calls, is_same))
    throw std::logic_error("a step does different operations on batches of different size");
  PassCapture result;
  for (size_t i = 0; i < pass.events.size(); ++i)
    result.events.push_back(
        {.what = pass.events[i].what,
         .parameter = pass.events[i].parameter - first_parameter,
         .bytes = BatchSize::between(static_cast<double>(pass.events[i].bytes),
                                     static_cast<double>(larger.events[i].bytes), kBatch)});
  for (size_t i = 0; i < pass.calls.size(); ++i)
    result.calls.push_back(combine(pass.calls[i], larger.calls[i]));
  return result;
}

/// The tensors that exist only during the loss of a language model have as many rows as it computes at a
/// time.
void mark_rows_at_once(LayerGroupCapture& loss, const RecordedLayerGroup& recorded) {
  std::map<int64_t, int> events_of;  // by tensor
  for (const RecordedEvent& event : recorded.forward.events)
    ++events_of[event.tensor];
  for (size_t i = 0; i < recorded.forward.events.size(); ++i) {
    const RecordedEvent& event = recorded.forward.events[i];
    loss.forward.events[i].is_of_rows_at_once =
        event.what != CaptureEvent::What::kTensor || events_of[event.tensor] == 2;
  }
}

/// By branch: index of the first parameter at or after its own.
std::vector<int> first_parameters(const ModelLayout& layout) {
  std::vector<int> first(layout.branches.size(), 0);
  for (int p = static_cast<int>(layout.parameters.size()) - 1; p >= 0; --p)
    if (layout.parameters[p].branch) first[*layout.parameters[p].branch] = p;
  return first;
}

bool have_same_shapes(const std::vector<ParameterLayout>& a, const std::vector<ParameterLayout>& b) {
  return std::ranges::equal(a, b, [](const auto& one, const auto& other) {
    return one.shape == other.shape && one.role == other.role;
  });
}

bool are_of_one_kind(const BranchLayout& a, const BranchLayout& b) {
  return a.kind == b.kind && a.hidden_width == b.hidden_width && a.stream.input == b.stream.input &&
         a.stream.output == b.stream.output;
}

}  // namespace

StepCaptures::StepCaptures(StepShape step, const SubnetPlan& plan)
    : step_(std::move(step)),
      plan_(plan),
      first_of_kind_(first_of_kind(plan.layout)),
      first_parameter_(first_parameters(plan.layout)) {}

int StepCaptures::first_parameter_of(size_t layer_group) const {
  return layer_group == 0 || layer_group > first_parameter_.size() ? 0 : first_parameter_[layer_group - 1];
}

std::vector<StepCaptures::LayerGroupKey> StepCaptures::keys_of(int worker) const {
  const size_t branches = plan_.layout.branches.size();
  std::vector<LayerGroupKey> keys(branches + 2);
  LayerGroupKey next{.layer_group = 0, .own = {}, .next_branch = branches, .trains_next = false};
  for (size_t layer_group = branches + 2; layer_group-- > 0;) {
    LayerGroupKey& key = keys[layer_group];
    key = next;
    key.layer_group = layer_group;
    if (layer_group == 0 || layer_group > branches) continue;
    const size_t branch = layer_group - 1;
    if (first_of_kind_[branch] >= 0) {
      key.layer_group = static_cast<size_t>(first_of_kind_[branch]) + 1;
      key.next_branch = 0;
    }
    if (!plan_.has_branch(worker, static_cast<int>(branch))) continue;
    key.own = {.is_bound = true,
               .owned_width = plan_.owned_width(worker, static_cast<int>(branch)),
               .frozen_width = plan_.frozen_width(worker, static_cast<int>(branch))};
    next.next_branch = branch;
    next.trains_next = key.own.owned_width > 0;
  }
  return keys;
}

void StepCaptures::record(int worker, const std::vector<LayerGroupKey>& keys) {
  // Of branches of a kind, only one with each key is recorded.
  std::vector<int> left_out;
  std::set<LayerGroupKey> recorded_keys;
  for (int branch = 0; branch < static_cast<int>(first_of_kind_.size()); ++branch) {
    const LayerGroupKey& key = keys[static_cast<size_t>(branch) + 1];
    const bool is_known = layer_groups_.contains(key) || !recorded_keys.insert(key).second;
    if (first_of_kind_[static_cast<size_t>(branch)] >= 0 && is_known) left_out.push_back(branch);
  }
  const auto recorded = record_step(step_, plan_, worker, kBatch, left_out);
  const auto of_larger_batch = record_step(step_, plan_, worker, kLargerBatch, left_out);
  for (size_t s = 0; s < keys.size(); ++s) {
    if (layer_groups_.contains(keys[s])) continue;
    const int first_parameter = first_parameter_of(s);
    LayerGroupCapture capture{
        .forward = combine(recorded[s].forward, of_larger_batch[s].forward, first_parameter),
        .backward = combine(recorded[s].backward, of_larger_batch[s].backward, first_parameter)};
    if (s + 1 == keys.size() && step_.model.reads_tokens()) mark_rows_at_once(capture, recorded[s]);
    layer_groups_.emplace(keys[s], std::make_shared<const LayerGroupCapture>(std::move(capture)));
  }
}

StepCapture StepCaptures::of(int worker) {
  const std::vector<LayerGroupKey> keys = keys_of(worker);
  const bool is_known =
      std::ranges::all_of(keys, [&](const LayerGroupKey& key) { return layer_groups_.contains(key); });
  if (!is_known) record(worker, keys);
  StepCapture capture;
  for (size_t s = 0; s < keys.size(); ++s)
    capture.layer_groups.push_back({layer_groups_.at(keys[s]), first_parameter_of(s)});
  if (step_.model.reads_tokens())
    capture.samples_at_once =
        static_cast<double>(logit_rows_at_a_time(step_.model.vocab_size(), step_.device_kernels)) /
        static_cast<double>(step_.sequence_length);
  return capture;
}

std::vector<int> first_of_kind(const ModelLayout& layout) {
  const std::vector<BranchLayout>& branches = layout.branches;
  std::vector<std::vector<ParameterLayout>> parameters(branches.size());
  for (const ParameterLayout& parameter : layout.parameters)
    if (parameter.branch) parameters[*parameter.branch].push_back(parameter);
  std::vector<int> result(branches.size(), -1);
  std::vector<size_t> firsts;
  for (size_t b = 0; b < branches.size(); ++b) {
    const int block = branches[b].block;
    if (branches[b].kind.empty() || block == branches.front().block || block == branches.back().block)
      continue;
    const auto found = std::ranges::find_if(firsts, [&](size_t first) {
      return are_of_one_kind(branches[first], branches[b]) &&
             have_same_shapes(parameters[first], parameters[b]);
    });
    result[b] = static_cast<int>(found == firsts.end() ? b : *found);
    if (found == firsts.end()) firsts.push_back(b);
  }
  return result;
}

}  // namespace sdp
