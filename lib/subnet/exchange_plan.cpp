#include "subnet/exchange_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace sdp {
namespace {

/// Shards begin at multiples of 64 bytes, in the sum type, within their segment.
constexpr int64_t kAlignmentBytes = 64;

class Packer {
 public:
  Packer(const SubnetPlan& plan, ExchangePlan& exchanges) : plan_(plan), exchanges_(exchanges) {}

  void add(int parameter_index, int unit) {
    const ParameterLayout& parameter = plan_.layout.parameters[parameter_index];
    const ElementType type = element_type(parameter, exchanges_.options.precision);
    const bool decays = exchanges_.options.decay_norms_and_biases || parameter.role == ParameterRole::kWeight;
    const std::vector<int>& groups = exchanges_.options.group_of;
    const int group = groups.empty() ? -1 : groups.at(static_cast<size_t>(parameter_index));
    const int64_t elements = plan_.elements_of(parameter, unit);
    Bucket& bucket = open_bucket({type, decays, group}, elements * bytes_of(type));
    if (bucket.segments.empty() || bucket.segments.back().unit != unit) {
      bucket.segments.push_back({});
      bucket.segments.back().unit = unit;
    }
    Segment& segment = bucket.segments.back();
    segment.slices.push_back(
        {.parameter = parameter_index, .offset = segment.elements, .elements = elements});
    segment.elements += elements;
  }

 private:
  using Kind = std::tuple<ElementType, bool, int>;  ///< Bucket's type, decays, group

  /// The bucket of this kind that still has room, or a new one. Buckets are in order of their first slice.
  Bucket& open_bucket(const Kind& kind, int64_t slice_bytes) {
    const auto found = open_.find(kind);
    if (found != open_.end() && found->second.bytes + slice_bytes <= exchanges_.options.bucket_bytes) {
      found->second.bytes += slice_bytes;
      return exchanges_.buckets[found->second.index];
    }
    open_[kind] = {exchanges_.buckets.size(), slice_bytes};
    const auto [type, decays, group] = kind;
    exchanges_.buckets.push_back({.type = type, .decays = decays, .group = group, .segments = {}});
    return exchanges_.buckets.back();
  }

  struct Open {
    size_t index = 0;
    int64_t bytes = 0;
  };
  const SubnetPlan& plan_;
  ExchangePlan& exchanges_;
  std::map<Kind, Open> open_;
};

}  // namespace

int64_t Segment::boundary(int holder) const {
  const auto count = static_cast<int64_t>(holders.size());
  return holder == count ? elements : elements * holder / count / alignment * alignment;
}

int64_t Segment::shard_begin(int process) const {
  const int holder = holders.place_of(process);
  return holder < 0 ? 0 : boundary(holder);
}

int64_t Segment::shard_elements(int process) const {
  const int holder = holders.place_of(process);
  return holder < 0 ? 0 : shard_of_holder(holder);
}

std::vector<SliceRange> slice_ranges(const Segment& segment, int64_t begin, int64_t elements) {
  std::vector<SliceRange> ranges;
  for (size_t i = 0; i < segment.slices.size(); ++i) {
    const Slice& slice = segment.slices[i];
    const int64_t from = std::max(begin, slice.offset);
    const int64_t to = std::min(begin + elements, slice.offset + slice.elements);
    if (from < to)
      ranges.push_back({.parameter = slice.parameter,
                        .unit = segment.unit,
                        .slice = i,
                        .begin = from - slice.offset,
                        .end = to - slice.offset,
                        .offset = from - begin});
  }
  return ranges;
}

std::vector<int> depths_of(const ModelLayout& layout) {
  std::vector<int> depths;
  for (const ParameterLayout& parameter : layout.parameters)
    depths.push_back(parameter.branch.value_or(depths.empty() ? -1 : depths.back()));
  return depths;
}

BucketIndex index_buckets(const ModelLayout& layout, const ExchangePlan& exchanges) {
  const std::vector<int> depths = depths_of(layout);
  BucketIndex index;
  index.buckets_of.resize(depths.size());
  for (int b = 0; b < static_cast<int>(exchanges.buckets.size()); ++b) {
    BucketParameters& parameters = index.parameters_of.emplace_back();
    parameters.needed_before = static_cast<int>(layout.branches.size());
    for (const Segment& segment : exchanges.buckets[b].segments) {
      for (const Slice& slice : segment.slices) {
        std::vector<int>& buckets = index.buckets_of[slice.parameter];
        if (buckets.empty()) parameters.first_of.push_back(slice.parameter);
        if (buckets.empty() || buckets.back() != b) buckets.push_back(b);
        parameters.needed_before = std::min(parameters.needed_before, depths[slice.parameter]);
      }
    }
  }
  return index;
}

ExchangePlan make_exchange_plan(const SubnetPlan& plan, const SlotMap& slot_map,
                                const ExchangeOptions& options) {
  ExchangePlan exchanges{.slot_map = slot_map, .options = options, .buckets = {}};
  Packer packer(plan, exchanges);
  const std::vector<ParameterLayout>& parameters = plan.layout.parameters;
  for (size_t begin = 0; begin < parameters.size();) {
    // Add the parameters of a branch unit by unit, so that a unit's slices are consecutive.
    size_t end = begin + 1;
    while (end < parameters.size() && parameters[end].branch &&
           parameters[end].branch == parameters[begin].branch)
      ++end;
    std::map<int, std::vector<int>> parameters_of_unit;
    for (size_t i = begin; i < end; ++i)
      for (int unit : plan.units_of(parameters[i]))
        if (!plan.owners(unit).empty() || plan.is_kept_frozen(unit))  // nobody stores others
          parameters_of_unit[unit].push_back(static_cast<int>(i));
    for (const auto& [unit, indices] : parameters_of_unit)
      for (int index : indices)
        packer.add(index, unit);
    begin = end;
  }
  const MemberSet everyone = slot_map.processes_of(plan.owners(kSharedUnit));
  std::vector<std::optional<MemberSet>> holders_of(plan.units.size());  // by unit, for units with a segment
  for (Bucket& bucket : exchanges.buckets) {
    for (Segment& segment : bucket.segments) {
      const MemberSet& owners = plan.owners(segment.unit);
      if (segment.unit == kSharedUnit) {
        segment.holders = everyone;
      } else {
        std::optional<MemberSet>& holders = holders_of[segment.unit];
        if (!holders) holders = slot_map.processes_of(owners);
        segment.holders = *holders;
      }
      segment.readers = plan.is_kept_frozen(segment.unit) ? everyone : segment.holders;
      segment.owner_slots = static_cast<int>(owners.size()) * slot_map.replicas;
      segment.alignment = kAlignmentBytes / bytes_of(sum_type(options.precision));
    }
  }
  return exchanges;
}

}  // namespace sdp
