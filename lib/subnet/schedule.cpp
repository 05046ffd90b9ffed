#include "subnet/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace sdp {
namespace {

/// Shares begin at multiples of 64 bytes of the sum type within their segment.
constexpr int64_t kAlignmentBytes = 64;

void divide(Segment& segment, ElementType sum) {
  const int64_t alignment = kAlignmentBytes / bytes_of(sum);
  const int64_t holders = static_cast<int64_t>(segment.holders.size());
  segment.boundaries.clear();
  for (int64_t i = 0; i <= holders; ++i) {
    const int64_t even = segment.elements * i / holders;
    segment.boundaries.push_back(i == holders ? segment.elements : even / alignment * alignment);
  }
}

class Packer {
 public:
  Packer(const SubnetPlan& plan, Schedule& schedule) : plan_(plan), schedule_(schedule) {}

  void add(int parameter_index, int unit) {
    const ParameterLayout& parameter = plan_.layout.parameters[parameter_index];
    const ElementType type = element_type(parameter, schedule_.options.precision);
    const bool decays = schedule_.options.decay_norms_and_biases || parameter.role == ParameterRole::kWeight;
    const int64_t elements = plan_.elements_of(parameter, unit);
    Bucket& bucket = open_bucket(type, decays, elements * bytes_of(type));
    if (bucket.segments.empty() || bucket.segments.back().unit != unit) {
      bucket.segments.push_back({});
      bucket.segments.back().unit = unit;
    }
    Segment& segment = bucket.segments.back();
    segment.pieces.push_back(
        {.parameter = parameter_index, .offset = segment.elements, .elements = elements});
    segment.elements += elements;
  }

 private:
  /// The bucket of this kind that still has room, or a new one. Buckets stand in order of their first piece.
  Bucket& open_bucket(ElementType type, bool decays, int64_t piece_bytes) {
    const auto key = std::make_pair(type, decays);
    const auto found = open_.find(key);
    if (found != open_.end() && found->second.bytes + piece_bytes <= schedule_.options.bucket_bytes) {
      found->second.bytes += piece_bytes;
      return schedule_.buckets[found->second.index];
    }
    open_[key] = {schedule_.buckets.size(), piece_bytes};
    schedule_.buckets.push_back({.type = type, .decays = decays, .segments = {}});
    return schedule_.buckets.back();
  }

  struct Open {
    size_t index = 0;
    int64_t bytes = 0;
  };
  const SubnetPlan& plan_;
  Schedule& schedule_;
  std::map<std::pair<ElementType, bool>, Open> open_;
};

}  // namespace

int Segment::holder_index(int process) const {
  const auto found = std::lower_bound(holders.begin(), holders.end(), process);
  return found != holders.end() && *found == process ? static_cast<int>(found - holders.begin()) : -1;
}

bool Segment::is_read_by(int process) const {
  return std::binary_search(readers.begin(), readers.end(), process);
}

bool Segment::is_for(int process, Audience audience) const {
  switch (audience) {
    case Audience::kHolders:
      return is_held_by(process);
    case Audience::kReaders:
      return is_read_by(process);
    case Audience::kOtherReaders:
      return is_read_by(process) && !is_held_by(process);
  }
  return false;
}

int64_t Segment::share_begin(int process) const {
  const int index = holder_index(process);
  return index < 0 ? 0 : boundaries[index];
}

int64_t Segment::share_elements(int process) const {
  const int index = holder_index(process);
  return index < 0 ? 0 : boundaries[index + 1] - boundaries[index];
}

std::vector<PieceRange> piece_ranges(const Segment& segment, int64_t begin, int64_t elements) {
  std::vector<PieceRange> ranges;
  for (const Piece& piece : segment.pieces) {
    const int64_t from = std::max(begin, piece.offset);
    const int64_t to = std::min(begin + elements, piece.offset + piece.elements);
    if (from < to)
      ranges.push_back({.parameter = piece.parameter,
                        .begin = from - piece.offset,
                        .end = to - piece.offset,
                        .offset = from - begin});
  }
  return ranges;
}

int64_t Bucket::reduce_elements(int from, int to) const {
  if (from == to) return 0;
  int64_t elements = 0;
  for (const Segment& segment : segments)
    if (segment.is_held_by(from)) elements += segment.share_elements(to);
  return elements;
}

int64_t Bucket::spread_elements(int from, int to, Audience audience) const {
  if (from == to) return 0;
  int64_t elements = 0;
  for (const Segment& segment : segments)
    if (segment.is_for(to, audience)) elements += segment.share_elements(from);
  return elements;
}

int64_t Bucket::held_elements(int process) const {
  int64_t elements = 0;
  for (const Segment& segment : segments)
    if (segment.is_held_by(process)) elements += segment.elements;
  return elements;
}

int64_t Bucket::share_elements(int process) const {
  int64_t elements = 0;
  for (const Segment& segment : segments)
    elements += segment.share_elements(process);
  return elements;
}

std::vector<int> depths_of(const ModelLayout& layout) {
  std::vector<int> depths;
  for (const ParameterLayout& parameter : layout.parameters)
    depths.push_back(parameter.branch.value_or(depths.empty() ? -1 : depths.back()));
  return depths;
}

std::vector<BucketParameters> parameters_of_buckets(const ModelLayout& layout, const Schedule& schedule) {
  constexpr int kNone = -1;
  const std::vector<int> depths = depths_of(layout);
  std::vector<int> latest(depths.size(), kNone);  // bucket, by parameter
  std::vector<BucketParameters> result;
  for (int b = 0; b < static_cast<int>(schedule.buckets.size()); ++b) {
    BucketParameters& parameters = result.emplace_back();
    parameters.needed_before = static_cast<int>(layout.branches.size());
    for (const Segment& segment : schedule.buckets[b].segments) {
      for (const Piece& piece : segment.pieces) {
        const int before = std::exchange(latest[piece.parameter], b);
        if (before == kNone) parameters.first_of.push_back(piece.parameter);
        if (before != b) parameters.all.push_back(piece.parameter);
        parameters.needed_before = std::min(parameters.needed_before, depths[piece.parameter]);
      }
    }
  }
  return result;
}

Schedule make_schedule(const SubnetPlan& plan, const Placement& placement, const ScheduleOptions& options) {
  Schedule schedule{.placement = placement, .options = options, .buckets = {}};
  Packer packer(plan, schedule);
  const std::vector<ParameterLayout>& parameters = plan.layout.parameters;
  for (size_t begin = 0; begin < parameters.size();) {
    // The parameters of one branch unit by unit, so that a unit's pieces stand together.
    size_t end = begin + 1;
    while (end < parameters.size() && parameters[end].branch &&
           parameters[end].branch == parameters[begin].branch)
      ++end;
    std::map<int, std::vector<int>> parameters_of_unit;
    for (size_t i = begin; i < end; ++i)
      for (int unit : plan.units_of(parameters[i]))
        parameters_of_unit[unit].push_back(static_cast<int>(i));
    for (const auto& [unit, indices] : parameters_of_unit)
      for (int index : indices)
        packer.add(index, unit);
    begin = end;
  }
  std::vector<int> everyone(plan.workers);
  std::iota(everyone.begin(), everyone.end(), 0);
  for (Bucket& bucket : schedule.buckets) {
    for (Segment& segment : bucket.segments) {
      segment.holders = placement.processes_of(plan.owners(segment.unit));
      segment.readers =
          plan.masking == Masking::kForward ? segment.holders : placement.processes_of(everyone);
      segment.owner_slots = static_cast<int>(plan.owners(segment.unit).size()) * placement.replicas;
      divide(segment, sum_type(options.precision));
    }
  }
  return schedule;
}

}  // namespace sdp
