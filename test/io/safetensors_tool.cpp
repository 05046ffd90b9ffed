// safetensors_tool IN OUT: reads a safetensors file and writes it again in pieces of uneven size; prints size
// and hash of OUT. Exit code 3 if the file is refused, with the reason on standard error.

#include <algorithm>
#include <cstdio>

#include "io/safetensors.h"
#include "spec/error.h"

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  const sdp::SafetensorsFile in(argv[1]);
  std::vector<sdp::TensorEntry> entries;
  for (const sdp::TensorView& view : in.entries())
    entries.push_back(view.entry);
  sdp::sort_for_writing(entries);
  sdp::SafetensorsWriter out(argv[2], entries, in.metadata());
  for (const sdp::TensorEntry& entry : entries) {
    auto data = in.find(entry.name)->data;
    for (size_t piece = 1; !data.empty(); piece = piece * 3 + 1) {
      const size_t size = std::min(piece, data.size());
      out.write(data.first(size));
      data = data.subspan(size);
    }
  }
  const sdp::FileDigest digest = out.finish();
  std::printf("%lld %s\n", static_cast<long long>(digest.bytes), digest.xxh3_128.c_str());
} catch (const sdp::DataError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 3;
}
