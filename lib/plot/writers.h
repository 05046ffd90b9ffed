#pragma once

// A scene as a file's content.

#include <string>

#include "plot/font.h"
#include "plot/scene.h"

namespace sdp {

/// Text stays text, in DejaVu Sans where the reader's machine has it.
std::string svg_of(const Scene& scene);

/// RGB, so many pixels wide.
std::string png_of(const Scene& scene, const Font& font, int width_pixels);

}  // namespace sdp
