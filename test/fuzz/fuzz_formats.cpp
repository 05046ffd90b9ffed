// Reads damaged files of one format:
//   fuzz_formats FORMAT [FIRST [COUNT]]
// Files FIRST..FIRST+COUNT-1 (defaults 0 and 5000) are read; each is the same on every machine, so that a
// failed one can be read again separately.
//
// Each must be read, or refused with an error meant for the user. The program fails at the first file that
// causes another exception, a report of AddressSanitizer or UBSan or an allocation beyond 1 GiB, or that
// takes 10 seconds; it also fails if a valid file is refused, or if all or none of more than 1000 files were
// read.
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string>
#include <vector>

#include "fixtures.h"
#include "formats.h"
#include "mutate.h"
#include "spec/error.h"

extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:hard_rss_limit_mb=2048:quarantine_size_mb=16:handle_abort=1";
}

namespace {

constexpr unsigned kLimitS = 10;

// The name of the file that is being read, for the handlers.
char current_file[128];

void say_which_file() {
  std::fprintf(stderr, "%s\n", current_file);
}

extern "C" void fail_at_alarm(int) {
  constexpr char kText[] = "endless reading: ";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  (void)!::write(STDERR_FILENO, current_file, sizeof current_file);
  ::_exit(1);
}

std::vector<sdp::fuzz::Format> all_formats() {
  using namespace sdp::fuzz;
  std::vector<Format> all;
  for (const auto formats : {array_formats, jpeg_formats, image_index_formats, token_formats})
    std::ranges::copy(formats(), std::back_inserter(all));
  return all;
}

/// Whether a file is read; false: refused. Ends the program in any other case.
bool reads(const sdp::fuzz::Format& format, const std::filesystem::path& file) {
  ::alarm(kLimitS);
  try {
    format.read(file);
  } catch (const sdp::DataError&) {
    return false;
  } catch (const sdp::UsageError&) {
    return false;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: unexpected exception: %s\n", current_file, error.what());
    std::exit(1);
  }
  return true;
}

int fuzz(const sdp::fuzz::Format& format, uint64_t first, uint64_t count) {
  const sdp::TempFolder folder;
  const std::string name(format.file_name);
  const std::vector<std::string> seeds = format.seeds();
  for (size_t seed = 0; seed < seeds.size(); ++seed) {
    std::snprintf(current_file, sizeof current_file, "%s: seed %zu", format.name.data(), seed);
    if (!reads(format, folder.write(name, seeds[seed]))) {
      std::fprintf(stderr, "%s: refused, though it is whole\n", current_file);
      return 1;
    }
  }
  uint64_t read = 0;
  for (uint64_t number = first; number < first + count; ++number) {
    std::snprintf(current_file, sizeof current_file, "%s: file %llu", format.name.data(),
                  static_cast<unsigned long long>(number));
    std::string bytes = sdp::fuzz::mutate(seeds, format.targets, number);
    if (format.repair && number % 4 != 0) bytes = format.repair(std::move(bytes));
    std::filesystem::remove(folder.path() / name);  // overwriting would write to the disk at once
    read += reads(format, folder.write(name, bytes));
  }
  ::alarm(0);
  std::printf("%s: %llu of %llu files read, the others refused\n", format.name.data(),
              static_cast<unsigned long long>(read), static_cast<unsigned long long>(count));
  if (count > 1000 && (read == 0 || read == count)) return 1;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::vector<sdp::fuzz::Format> all = all_formats();
  const auto format = std::find_if(all.begin(), all.end(), [&](const sdp::fuzz::Format& candidate) {
    return !arguments.empty() && candidate.name == arguments[0];
  });
  if (format == all.end()) {
    std::fprintf(stderr, "usage: fuzz_formats FORMAT [FIRST [COUNT]]; formats:\n");
    for (const sdp::fuzz::Format& known : all)
      std::fprintf(stderr, "  %s\n", known.name.data());
    return static_cast<int>(sdp::ExitCode::kUsage);
  }
  if (all.size() != SDP_FUZZ_FORMATS) {
    std::fprintf(stderr, "CMakeLists.txt names %d formats, there are %zu\n", SDP_FUZZ_FORMATS, all.size());
    return 1;
  }
  __sanitizer_set_death_callback(say_which_file);
  ::signal(SIGALRM, fail_at_alarm);
  return fuzz(*format, arguments.size() > 1 ? std::stoull(arguments[1]) : 0,
              arguments.size() > 2 ? std::stoull(arguments[2]) : 5000);
}
