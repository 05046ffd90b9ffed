#include "engine/checks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "engine/engines.h"

namespace sdp {
namespace {

/// The sum over elements i of (2 i + 1) times their bits, modulo 2^64: one element on the device.
at::Tensor hash_of(const at::Tensor& values) {
  constexpr int64_t kElementsAtATime = 1 << 20;  // limits the temporaries
  const at::ScalarType bits_type = values.element_size() == 8   ? at::kLong
                                   : values.element_size() == 4 ? at::kInt
                                                                : at::kShort;
  const at::Tensor flat = values.reshape({-1}).view(bits_type);
  at::Tensor hash = at::zeros({}, flat.options().dtype(at::kLong));
  for (int64_t begin = 0; begin < flat.numel(); begin += kElementsAtATime) {
    const int64_t count = std::min(kElementsAtATime, flat.numel() - begin);
    const at::Tensor factors =
        at::arange(2 * begin + 1, 2 * (begin + count) + 1, 2, flat.options().dtype(at::kLong));
    hash += (flat.narrow(0, begin, count) * factors).sum();
  }
  return hash;
}

/// What a process sends of one copy.
struct Entry {
  int32_t parameter;
  int32_t unit;
  int64_t hash;
};

std::string own_entries(const Engines& engines) {
  std::vector<Entry> entries;
  std::vector<at::Tensor> hashes;
  for (const Engine* engine : engines.all())
    for (const auto& [place, copies] : engine->store().slices())
      for (const at::Tensor& copy : copies) {
        entries.push_back({.parameter = place.first, .unit = place.second, .hash = 0});
        hashes.push_back(hash_of(copy));
      }
  if (!entries.empty()) {
    const at::Tensor on_host = at::stack(hashes).cpu();
    for (size_t i = 0; i < entries.size(); ++i)
      entries[i].hash = on_host.const_data_ptr<int64_t>()[i];
  }
  return {reinterpret_cast<const char*>(entries.data()), entries.size() * sizeof(Entry)};
}

}  // namespace

at::Tensor are_finite(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> extremes;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) {
      extremes.push_back(at::zeros({2}, tensor.options().dtype(at::kDouble)));
      continue;
    }
    // aminmax returns NaN for both extremes if the tensor contains a NaN.
    const auto [least, largest] = at::aminmax(tensor);
    extremes.push_back(at::stack({least, largest}).to(at::kDouble));
  }
  return at::isfinite(at::stack(extremes)).all(1);
}

std::optional<size_t> first_not_finite(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return std::nullopt;
  const at::Tensor finite = are_finite(tensors).cpu();
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!finite.const_data_ptr<bool>()[i]) return i;
  return std::nullopt;
}

std::vector<DifferentCopies> find_different_copies(const Engines& engines, Communicator& comm) {
  const at::NoGradGuard no_grad;
  std::map<std::pair<int, int>, std::map<int64_t, std::vector<int>>> ranks_of;  // by slice and hash
  int rank = 0;
  for (const std::string& text : comm.all_gather_strings(own_entries(engines))) {
    for (size_t at = 0; at < text.size(); at += sizeof(Entry)) {
      Entry entry{};
      std::memcpy(&entry, text.data() + at, sizeof entry);
      std::vector<int>& ranks = ranks_of[{entry.parameter, entry.unit}][entry.hash];
      if (ranks.empty() || ranks.back() != rank) ranks.push_back(rank);
    }
    ++rank;
  }
  std::vector<DifferentCopies> found;
  for (auto& [place, groups] : ranks_of) {
    if (groups.size() == 1) continue;
    DifferentCopies& different = found.emplace_back();
    different.parameter = place.first;
    different.unit = place.second;
    for (auto& [hash, ranks] : groups)
      different.ranks.push_back(std::move(ranks));
    std::stable_sort(different.ranks.begin(), different.ranks.end(),
                     [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }
  return found;
}

std::string describe(const std::vector<DifferentCopies>& found, const SubnetPlan& plan) {
  const DifferentCopies& first = found.front();
  std::vector<std::string> groups;
  for (const std::vector<int>& ranks : first.ranks)
    groups.push_back(fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")));
  return fmt::format("{}{} has different values on {}{}", plan.layout.parameters[first.parameter].name,
                     first.unit == kSharedUnit ? "" : fmt::format(", unit {},", first.unit),
                     fmt::join(groups, " and "),
                     found.size() == 1 ? "" : fmt::format(" (and {} more slices)", found.size() - 1));
}

}  // namespace sdp
