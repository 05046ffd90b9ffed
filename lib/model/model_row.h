#pragma once

// What model/registry.h asks of every model. A model is a folder; its header NAME_spec.h needs no LibTorch
// and has a struct with
//
// - names: those of model.name that mean it, as of several sizes; the first is the usual one
// - reads_tokens: false: images
// - has_batch_norm: it has statistics to estimate anew after assembly
// - normalizes_branch_output: by BatchNorm, so that a factor on a branch's slices has no effect
// - branches_per_block
// - fields(), treatment: its keys of the section `model` (spec/visit.h). Of a model that reads tokens
//   vocab_size is one of them, of others num_classes and image_size
// - resolve(name): fills what is unset
// - check(positions): throws UsageError for resolved sizes that do not go together
// - tiny(): an instance of a few thousand parameters, for `doctor` and tests: 10 classes, images of 8
//   pixels, a vocabulary of 32
// - most_tokens(): only where it reads tokens: the longest sequence; none: any
//
// and declares these functions of that struct. What lacks one of them does not compile or link.
//
// - ModelLayout layout_of(const NameSpec&, int64_t sequence_length): in NAME_layout.cpp, without LibTorch
// - std::unique_ptr<Model> make_model(const NameSpec&, const DropRates&)
// - std::unique_ptr<LibraryFormat> library_format(const NameSpec&): null: its library has no config.json
// - LibraryConstants library_constants(const NameSpec&, const ModelLayout&): tensors that never change

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "spec/limits.h"
#include "spec/position.h"
#include "spec/visit.h"

namespace at {
class Tensor;
}

namespace sdp {

struct ModelLayout;
class Model;
class LibraryFormat;
using LibraryConstants = std::map<std::string, at::Tensor>;

/// How the branches share model.stochastic_depth, both rules of Huang et al. 2016: the last branch is dropped
/// with that probability and earlier ones linearly less, or every branch is dropped with it.
enum class StochasticDepthRule { kLinear, kUniform };
SDP_ENUM_NAMES(StochasticDepthRule, {StochasticDepthRule::kLinear, "linear"},
               {StochasticDepthRule::kUniform, "uniform"})

/// What training drops at random, of every model (model/branch.h).
struct DropRates {
  double dropout = 0;
  double stochastic_depth = 0;
  StochasticDepthRule stochastic_depth_rule = StochasticDepthRule::kLinear;
};

/// Sizes and input of a model decide what its tensors are.
inline constexpr Treatment kModelTreatment{OnResume::kFixed, InReport::kCompared};

inline constexpr int64_t kSmallImageSize = 32;
inline constexpr int64_t kImageNetImageSize = 224;

/// Throws UsageError at the key unless `by` divides `value`.
void check_multiple(const Positions& positions, const std::string& key, int64_t value,
                    const std::string& divisor, int64_t by, const std::string& why);

}  // namespace sdp
