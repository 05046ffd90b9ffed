#include "capture/branch_kinds.h"

#include <algorithm>

namespace sdp {
namespace {

bool have_same_shapes(const std::vector<ParameterLayout>& a, const std::vector<ParameterLayout>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.shape == other.shape && one.role == other.role;
  });
}

bool are_of_one_kind(const BranchLayout& a, const BranchLayout& b) {
  return a.kind == b.kind && a.hidden_width == b.hidden_width && a.stream.input == b.stream.input &&
         a.stream.output == b.stream.output;
}

}  // namespace

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
    const auto found = std::find_if(firsts.begin(), firsts.end(), [&](size_t first) {
      return are_of_one_kind(branches[first], branches[b]) &&
             have_same_shapes(parameters[first], parameters[b]);
    });
    result[b] = static_cast<int>(found == firsts.end() ? b : *found);
    if (found == firsts.end()) firsts.push_back(b);
  }
  return result;
}

}  // namespace sdp
