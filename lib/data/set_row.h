#pragma once

// What data/registry.h requires of every data set. A set's header has a struct with
//
//   names                  of the set in data.name
//   kind                   images held in memory, images read while training, or tokens
//   usual_augmentation()   where data.augment is unset
//   normalization()        only of images
//   official_samples()     of the training split as it was published; std::nullopt: the files decide
//   class_names(data)      only of images: by label; empty if unknown
//   eval_resize_of(size)   only of images: shorter side before the center crop of `size` pixels in evaluation
//   fields()               its own keys of the section `data` (spec/visit.h)
//   resolve(model)         fills what is unset
//   missing()              what a missing folder should hold, how to get it, what to train on instead
//
// Images held in memory have these from HeldImagesRow (small_images.h). The others declare functions, without
// which they do not compile or link:
//
//   std::unique_ptr<Dataset> open_set(const NameSpec&, const DataSpec&, const ModelSpec&, Split,
//                                     const OnProgress&);
//   void check_set(const NameSpec&, const DataSpec&, const ModelSpec&, int64_t threads, SplitReport&,
//                  const OnProgress&);

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/image_shape.h"
#include "io/on_progress.h"
#include "spec/field.h"
#include "spec/visit.h"

namespace sdp {

enum class DataKind { kHeldImages, kStreamedImages, kTokens };
enum class Split { kTrain, kTest };
enum class Augmentation { kCrop, kResizedCrop, kFlip };
enum class OnError { kError, kSkip };

SDP_ENUM_NAMES(Augmentation, {Augmentation::kCrop, "crop"}, {Augmentation::kResizedCrop, "resized_crop"},
               {Augmentation::kFlip, "flip"})
SDP_ENUM_NAMES(OnError, {OnError::kError, "error"}, {OnError::kSkip, "skip"})

/// The parts of a message, each without a full stop.
struct MissingData {
  std::string files;           ///< "train.safetensors and val.safetensors"
  std::string command;         ///< creates the folder, which becomes its last word
  std::string other_data;      ///< "on 5,000 images of CIFAR-10"
  std::string other_commands;  ///< train on that data; lines with two leading spaces
};

/// For images: the 5,000 of CIFAR-10 in the source tree.
inline constexpr std::string_view kExampleImages = "examples/data";
inline constexpr std::string_view kExampleImagesText = "on 5,000 images of CIFAR-10";

/// What to train on instead of other small images: a change of the data set.
std::string other_small_images();

struct DataSpec;
struct ModelSpec;
struct SplitReport;
class Dataset;

}  // namespace sdp
