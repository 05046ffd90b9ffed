#pragma once

// A scene as an SVG document.

#include <string>

#include "plot/scene.h"

namespace sdp {

/// Text stays text, in DejaVu Sans where the reader's machine has it.
std::string svg_of(const Scene& scene);

}  // namespace sdp
