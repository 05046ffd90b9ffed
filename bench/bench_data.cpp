// Speed of lib/data on one thread:
//   bench_data jpeg FOLDER [SECONDS]   decoding, cropping and resizing of the JPEGs below a folder
//   bench_data cifar [SECONDS]         augmentation of 32 x 32 images
// Each output line: name, images per second of processor time, images per second of wall-clock time.
#include "bench_data.h"

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

constexpr double kSeconds = 5;
constexpr const char* kUsage = "usage: bench_data jpeg FOLDER [SECONDS] | bench_data cifar [SECONDS]\n";

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string what = arguments.empty() ? "" : arguments[0];
  const auto seconds = [&](size_t at) { return arguments.size() > at ? std::stod(arguments[at]) : kSeconds; };
  try {
    if (what == "jpeg" && arguments.size() >= 2) {
      sdp::bench::bench_jpeg(arguments[1], seconds(2));
    } else if (what == "cifar") {
      sdp::bench::bench_cifar(seconds(1));
    } else {
      std::fputs(kUsage, stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
