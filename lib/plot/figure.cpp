#include "plot/figure.h"

#include "io/atomic_file.h"
#include "plot/drawing.h"
#include "plot/writers.h"

namespace sdp {
namespace {

constexpr int kPngWidth = 1600;

}  // namespace

std::string to_svg(const Figure& figure) {
  return svg_of(draw(figure, Font()));
}

std::string to_png(const Figure& figure) {
  const Font font;
  return png_of(draw(figure, font), font, kPngWidth);
}

void write_figure(const Figure& figure, const std::filesystem::path& folder, const std::string& name) {
  write_file_atomically(folder / (name + ".svg"), to_svg(figure));
  write_file_atomically(folder / (name + ".png"), to_png(figure));
}

}  // namespace sdp
