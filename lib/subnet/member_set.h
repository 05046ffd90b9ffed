#pragma once

// A set of workers or processes with constant-time membership and position look-ups: plans of a thousand
// workers need many millions of them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sdp {

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

}  // namespace sdp
