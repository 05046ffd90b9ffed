#include "plot/figure.h"

#include "io/atomic_file.h"
#include "plot/drawing.h"
#include "plot/svg.h"

namespace sdp {

std::string to_svg(const Figure& figure) {
  return svg_of(draw(figure));
}

void write_figure(const Figure& figure, const std::filesystem::path& folder, const std::string& name) {
  write_file_atomically(folder / (name + ".svg"), to_svg(figure));
}

}  // namespace sdp
