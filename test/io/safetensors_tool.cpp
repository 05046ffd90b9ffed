// copy IN OUT: reads a safetensors file and writes it again in pieces of uneven size; prints size and hash of
// OUT.
// check IN: only reads it. Exit code 3 if the file is refused, with the reason on standard error.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "spec/error.h"

namespace {

void copy(const std::string& from, const std::string& to) {
  const sdp::SafetensorsFile in(from);
  std::vector<sdp::TensorEntry> entries;
  for (const sdp::TensorView& view : in.entries())
    entries.push_back(view.entry);
  sdp::sort_for_writing(entries);
  sdp::SafetensorsWriter out(to, entries, in.metadata());
  size_t piece = 1;
  for (const sdp::TensorEntry& entry : entries) {
    auto data = in.find(entry.name)->data;
    while (!data.empty()) {
      const size_t size = std::min(piece, data.size());
      out.write(data.first(size));
      data = data.subspan(size);
      piece = piece * 3 + 1;
    }
    piece = 1;
  }
  const sdp::FileDigest digest = out.finish();
  std::printf("%lld %s\n", static_cast<long long>(digest.bytes), digest.xxh3_128.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    if (args.size() == 3 && args[0] == "copy") {
      copy(args[1], args[2]);
      return 0;
    }
    if (args.size() == 2 && args[0] == "check") {
      const sdp::SafetensorsFile file(args[1]);
      return 0;
    }
  } catch (const sdp::DataError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 2;
}
