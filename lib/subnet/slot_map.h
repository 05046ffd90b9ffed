#pragma once

// Slot map: n workers x R replicas on W processes. A slot is one (worker, replica); slots are numbered
// worker * R + replica, and every process runs the same number of consecutive slots, one after another.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sdp {

// A set of workers or processes with constant-time membership and position look-ups: plans of a thousand
// workers need many millions of them.

/// Ascending, distinct, non-negative numbers. A set is immutable, and copies share their content.
class MemberSet {
 public:
  MemberSet() = default;
  /// Throws std::logic_error unless the numbers are ascending, distinct and non-negative.
  // NOLINTNEXTLINE(google-explicit-constructor): a list of numbers in checked form
  MemberSet(std::vector<int> members);

  const std::vector<int>& members() const { return content_->members; }
  auto begin() const { return members().begin(); }
  auto end() const { return members().end(); }
  size_t size() const { return members().size(); }
  bool empty() const { return members().empty(); }
  int front() const { return members().front(); }
  int back() const { return members().back(); }
  int operator[](size_t place) const { return members()[place]; }

  bool contains(int number) const {
    const auto word = static_cast<size_t>(number) / kBits;
    return word < content_->words.size() && (content_->words[word].bits >> (number % kBits) & 1) != 0;
  }
  /// Position of the number among the members; -1 if it is not a member.
  int place_of(int number) const;

  bool operator==(const MemberSet& other) const { return members() == other.members(); }

 private:
  static constexpr int kBits = 64;
  struct Word {
    uint64_t bits = 0;
    int before = 0;  ///< number of members below the word's numbers
  };
  struct Content {
    std::vector<int> members;
    std::vector<Word> words;
  };
  static std::shared_ptr<const Content> content_of(std::vector<int> members);

  std::shared_ptr<const Content> content_ = std::make_shared<const Content>();
};

/// The owners of units, or of groups of units, as lists that a search can change: ascending, distinct
/// workers.
using Owners = std::vector<std::vector<int>>;

struct Slot {
  int worker = 0;
  int replica = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): false alarm of clang-tidy 14
  auto operator<=>(const Slot&) const = default;
};

struct SlotMap {
  int workers = 1;       ///< n
  int replicas = 1;      ///< R
  int processes = 1;     ///< W
  int first_worker = 0;  ///< number of the first of the workers

  int slots() const { return workers * replicas; }
  int slots_per_process() const { return slots() / processes; }
  int process_of(Slot slot) const {
    return ((slot.worker - first_worker) * replicas + slot.replica) / slots_per_process();
  }
  /// Slots of a process, in the order in which their gradients are summed.
  std::vector<Slot> slots_of(int process) const;
  std::vector<int> workers_of(int process) const;  ///< ascending
  /// Processes that run at least one slot of one of these workers.
  MemberSet processes_of(const MemberSet& worker_set) const;
};

/// W must be R n or divide n; otherwise throws UsageError naming the possible W.
SlotMap make_slot_map(int64_t workers, int64_t replicas, int64_t processes);

}  // namespace sdp
