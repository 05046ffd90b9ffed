#pragma once

// The requirements that model/registry.h places on a model. A model is a few files. Its header NAME_spec.h
// does not include LibTorch. It defines a struct with
//
// - names: the values of model.name that select the model, for example one for each size; the first is the
//   default
// - reads_tokens: whether it reads tokens; otherwise it reads images
// - has_batch_norm: whether it has BatchNorm statistics to re-estimate after assembly
// - normalizes_branch_output: whether a BatchNorm follows a branch's slices, so that a factor on them has no
//   effect
// - branches_per_block
// - fields(), treatment: its keys of the section `model` (spec/visit.h). A model that reads tokens has the
// key
//   vocab_size; other models have num_classes, image_size and image_channels
// - resolve(name): sets the keys that are unset
// - check(positions): throws UsageError for resolved sizes that contradict each other
// - tiny(): an instance with a few thousand parameters, for `doctor` and tests: 10 classes, images of 8
//   pixels, a vocabulary of 32 tokens
// - timm_architecture(): only for a model that reads images: the name of timm's model with the same tensors
//   and the same forward pass; empty if there is none
// - most_tokens(): only for a model that reads tokens: the longest sequence; none: any length
//
// and declares these functions for the struct. A model that lacks one of the first two does not compile or
// link; the others have defaults in model/library_format.h.
//
// - ModelLayout layout_of(const NameSpec&, int64_t sequence_length): in NAME_layout.cpp, without LibTorch
// - std::unique_ptr<Model> make_model(const NameSpec&, const DropRates&)
// - std::unique_ptr<LibraryFormat> library_format(const NameSpec&): if its library has a config.json
// - LibraryConstants library_constants(const NameSpec&, const ModelLayout&): if its library saves tensors
//   that never change

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "layers/drop_rates.h"
#include "spec/field.h"
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

/// Treatment of a model's keys. They are fixed, because the sizes and the input of a model determine its
/// tensors.
inline constexpr Treatment kModelTreatment{OnResume::kFixed, InReport::kCompared};

inline constexpr int64_t kSmallImageSize = 32;
inline constexpr int64_t kImageNetImageSize = 224;
inline constexpr int64_t kColorChannels = 3;
inline constexpr std::string_view kImageChannelsDoc = "channels of the input images: 3 for RGB, 1 for gray";

/// Number of attention heads for a width that was given without one: heads of `head_size` elements, or else
/// of the largest smaller even size that divides the width.
int64_t heads_of_width(int64_t width, int64_t head_size);

/// Throws UsageError at the position of the key unless `by` divides `value`.
void check_multiple(const Positions& positions, const std::string& key, int64_t value,
                    const std::string& divisor, int64_t by, const std::string& why);

}  // namespace sdp
