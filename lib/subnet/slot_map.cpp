#include "subnet/slot_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "spec/error.h"

namespace sdp {

MemberSet::MemberSet(std::vector<int> members) : content_(content_of(std::move(members))) {}

std::shared_ptr<const MemberSet::Content> MemberSet::content_of(std::vector<int> members) {
  if (std::adjacent_find(members.begin(), members.end(), std::greater_equal<>()) != members.end() ||
      (!members.empty() && members.front() < 0))
    throw std::logic_error("members must be ascending, distinct and non-negative");
  auto content = std::make_shared<Content>();
  content->words.resize(members.empty() ? 0 : static_cast<size_t>(members.back()) / kBits + 1);
  for (int member : members)
    content->words[static_cast<size_t>(member) / kBits].bits |= uint64_t{1} << (member % kBits);
  int before = 0;
  for (Word& word : content->words) {
    word.before = before;
    before += std::popcount(word.bits);
  }
  content->members = std::move(members);
  return content;
}

int MemberSet::place_of(int number) const {
  if (!contains(number)) return -1;
  const Word& word = content_->words[static_cast<size_t>(number) / kBits];
  const uint64_t below = (uint64_t{1} << (number % kBits)) - 1;
  return word.before + std::popcount(word.bits & below);
}

std::vector<Slot> SlotMap::slots_of(int process) const {
  std::vector<Slot> result;
  for (int i = process * slots_per_process(); i < (process + 1) * slots_per_process(); ++i)
    result.push_back({.worker = first_worker + i / replicas, .replica = i % replicas});
  return result;
}

std::vector<int> SlotMap::workers_of(int process) const {
  std::vector<int> result;
  for (const Slot& slot : slots_of(process))
    if (result.empty() || result.back() != slot.worker) result.push_back(slot.worker);
  return result;
}

MemberSet SlotMap::processes_of(const MemberSet& worker_set) const {
  std::vector<int> result;  // ascending, because slots are numbered worker by worker
  for (int worker : worker_set) {
    for (int replica = 0; replica < replicas; ++replica) {
      const int process = process_of({.worker = worker, .replica = replica});
      if (result.empty() || result.back() != process) result.push_back(process);
    }
  }
  return result;
}

SlotMap make_slot_map(int64_t workers, int64_t replicas, int64_t processes) {
  if (processes == workers * replicas || (processes >= 1 && workers % processes == 0))
    return {.workers = static_cast<int>(workers),
            .replicas = static_cast<int>(replicas),
            .processes = static_cast<int>(processes)};
  std::vector<int64_t> possible;
  for (int64_t w = 1; w <= workers; ++w)
    if (workers % w == 0) possible.push_back(w);
  if (replicas > 1) possible.push_back(workers * replicas);
  throw UsageError(fmt::format(
      "{} workers x {} replicas cannot run on {} processes: expected one process per replica of each worker, "
      "or a number that divides the number of workers ({}). Start one of these numbers of processes, or "
      "change subnetwork.workers or subnetwork.replicas.",
      workers, replicas, processes, fmt::join(possible, ", ")));
}

}  // namespace sdp
