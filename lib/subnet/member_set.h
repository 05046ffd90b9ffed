#pragma once

// A set of workers or processes that answers at once whether a number is in it and at which place: plans of
// a thousand workers ask it many million times.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sdp {

/// Ascending, distinct numbers from 0 on. It does not change, and copies share their content.
class MemberSet {
 public:
  MemberSet() = default;
  /// Throws std::logic_error unless the numbers are ascending, distinct and not negative.
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
  /// Place of the number among the members; -1 where it is none of them.
  int place_of(int number) const;

  bool operator==(const MemberSet& other) const { return members() == other.members(); }

 private:
  static constexpr int kBits = 64;
  struct Word {
    uint64_t bits = 0;
    int before = 0;  ///< members below the word's numbers
  };
  struct Content {
    std::vector<int> members;
    std::vector<Word> words;
  };
  static std::shared_ptr<const Content> content_of(std::vector<int> members);

  std::shared_ptr<const Content> content_ = std::make_shared<const Content>();
};

}  // namespace sdp
