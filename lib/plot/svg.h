#pragma once

// A scene as an SVG document.

#include <string>

#include "plot/scene.h"

namespace sdp {

/// Text remains text, in DejaVu Sans if the reader's machine has it.
std::string svg_of(const Scene& scene);

}  // namespace sdp
