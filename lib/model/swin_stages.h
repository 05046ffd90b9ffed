#pragma once

// The sizes of Swin's stages. Both the layout and the forward pass need them, so this header does not
// need LibTorch.

#include <cstdint>
#include <string>
#include <vector>

#include "model/swin_spec.h"

namespace sdp {

struct SwinStage {
  std::string name;     ///< "features.1"; its blocks are features.1.0, features.1.1, ..
  std::string merging;  ///< name of the patch merging after it; empty for the last stage
  int first_block = 0;  ///< index in the network
  int blocks = 0;
  int64_t width = 0;
  int64_t heads = 0;
  int64_t size = 0;         ///< height and width of the map
  int64_t window = 0;       ///< side of a window
  int64_t padded_size = 0;  ///< height and width of the map padded with zeros to whole windows
  int64_t shift = 0;        ///< of the windows in every second block; 0 if one window covers the map

  int64_t windows() const { return (padded_size / window) * (padded_size / window); }
  int64_t window_positions() const { return window * window; }
};

inline constexpr int64_t kSwinMlpRatio = 4;

/// The stages of a resolved spec. From stage to stage, the width doubles, and the map's size is halved,
/// rounding up.
inline std::vector<SwinStage> swin_stages(const SwinSpec& spec) {
  std::vector<SwinStage> stages(spec.depths->size());
  int64_t size = *spec.image_size / *spec.patch_size;
  int block = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    SwinStage& stage = stages[i];
    stage.name = "features." + std::to_string(2 * i + 1);
    if (i + 1 < stages.size()) stage.merging = "features." + std::to_string(2 * i + 2);
    stage.first_block = block;
    stage.blocks = static_cast<int>((*spec.depths)[i]);
    stage.width = *spec.width << i;
    stage.heads = (*spec.num_heads)[i];
    stage.size = size;
    stage.window = *spec.window_size;
    stage.padded_size = (size + stage.window - 1) / stage.window * stage.window;
    stage.shift = stage.window < stage.padded_size ? stage.window / 2 : 0;
    block += stage.blocks;
    size = (size + 1) / 2;
  }
  return stages;
}

}  // namespace sdp
