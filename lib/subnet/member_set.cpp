#include "subnet/member_set.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <stdexcept>
#include <utility>

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

}  // namespace sdp
