// Reads damaged files of one format:
//   fuzz_formats FORMAT [FIRST [COUNT]]
// Files FIRST..FIRST+COUNT-1 (defaults 0 and 5000) are read; each is the same on every machine, so that a
// failed one can be read again separately.
//
// Each must be read, or refused with an error meant for the user. The program fails at the first file that
// causes another exception, a report of AddressSanitizer or UBSan or an allocation beyond 1 GiB, or that
// takes 10 seconds; it also fails if a valid file is refused, or if all or none of more than 1000 files were
// read.
#include <fmt/format.h>
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>

#include "formats.h"

extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=1024:hard_rss_limit_mb=2048:quarantine_size_mb=16:handle_abort=1";
}

namespace sdp::fuzz {
namespace {

/// A valid file with one to three kinds of damage. The result depends only on the arguments: the generator is
/// the standard library's, but not its distributions, which differ between implementations.
class Mutation {
 public:
  Mutation(const Format& format, const std::vector<std::string>& seeds, uint64_t number)
      : format_(format), seeds_(seeds), random_(number), bytes_(seeds[below(seeds.size())]) {}

  std::string damaged() {
    for (size_t damages = 1 + below(3); damages > 0 && !bytes_.empty(); --damages)
      damage(below(10));
    return bytes_;
  }

 private:
  /// A number in 0..n-1; n is at least 1.
  size_t below(size_t n) { return random_() % n; }
  bool coin() { return below(2) == 0; }
  size_t position() {
    if (below(4) == 0) return std::min(bytes_.size() - 1, format_.fields[below(format_.fields.size())]);
    return below(coin() ? std::min(bytes_.size(), format_.header_bytes) : bytes_.size());
  }

  void damage(size_t kind) {
    const size_t at = position(), other_at = position();
    const bool aligned = coin(), same = coin();
    const size_t block = 1 + below(coin() ? 8 : 600);
    if (kind == 0) set_number(aligned ? at / 4 * 4 : at);
    if (kind == 1) set_digits(at);
    if (kind == 2) bytes_[at] = static_cast<char>(bytes_[at] + below(65) - 32);
    if (kind == 3) {
      const size_t begin = aligned ? at / 512 * 512 : at;
      std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(begin), std::min(block, bytes_.size() - begin),
                  '\0');
    }
    if (kind == 4) {
      std::string inserted(block, static_cast<char>(random_()));
      if (!same) std::ranges::generate(inserted, [&] { return static_cast<char>(random_()); });
      bytes_.insert(at, inserted);
    }
    if (kind == 5) bytes_.erase(at, block);
    if (kind == 6) bytes_.insert(other_at, std::string(bytes_, at, block));
    if (kind == 7) bytes_.resize(at);
    if (kind == 8) {  // another seed's end
      const std::string& other = seeds_[below(seeds_.size())];
      bytes_ = bytes_.substr(0, at) + other.substr(below(other.size()));
    }
    if (kind == 9)
      for (size_t flips = 1 + below(8); flips > 0; --flips)
        bytes_[position()] ^= static_cast<char>(1 << below(8));
  }

  /// Writes a number of 1, 2, 4 or 8 bytes: limits of types, the file's size, small numbers.
  void set_number(size_t at) {
    const uint64_t size = bytes_.size();
    const std::array<uint64_t, 16> numbers = {0,    1,          2,          0x7f,       0x80,       0xff,
                                              4,    0x7fffffff, 0x80000000, 0xffffffff, 0x40000000, size,
                                              ~0UL, size - 1,   size + 1,   random_()};
    const uint64_t number = numbers[below(numbers.size())];
    const size_t width = size_t{1} << below(4);
    const bool little = below(4) != 0;
    for (size_t byte = 0; byte < width && at + byte < bytes_.size(); ++byte)
      bytes_[at + byte] = static_cast<char>(number >> (8 * (little ? byte : width - 1 - byte)));
  }

  /// Replaces a number in digits with another one, either of the same length, so that everything else keeps
  /// its position, or of any length.
  void set_digits(size_t at) {
    const std::array<std::string, 11> numbers = {"0",
                                                 "9",
                                                 "-1",
                                                 "0.5",
                                                 "1e999",
                                                 "4294967296",
                                                 "17777777777",
                                                 "37777777777",
                                                 "77777777777",
                                                 "",
                                                 "18446744073709551616"};
    constexpr const char* kDigits = "0123456789";
    size_t begin = std::min(bytes_.find_first_of(kDigits, at), bytes_.size());
    if (begin > 0) begin = bytes_.find_last_not_of(kDigits, begin - 1) + 1;
    const size_t end = std::min(bytes_.find_first_not_of(kDigits, begin), bytes_.size());
    std::string number = numbers[below(numbers.size())];
    if (coin()) {
      number.insert(0, std::max(number.size(), end - begin) - number.size(), '0');
      number.resize(end - begin);
    }
    bytes_.replace(begin, end - begin, number);
  }

  const Format& format_;
  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_;
  std::string bytes_;
};

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

/// Whether a file is read; false: refused. Ends the program in any other case.
bool reads(const Format& format, const std::filesystem::path& folder, const std::string& name,
           const std::string& bytes) {
  *fmt::format_to_n(current_file, sizeof current_file - 1, "{}: {}", format.name, name).out = '\0';
  const std::filesystem::path file = folder / format.file_name;
  std::filesystem::remove(file);  // overwriting would write to the disk at once
  put(file, bytes);
  ::alarm(10);
  try {
    format.read(file);
  } catch (const std::exception& error) {
    if (dynamic_cast<const DataError*>(&error) || dynamic_cast<const UsageError*>(&error)) return false;
    std::fprintf(stderr, "%s: unexpected exception: %s\n", current_file, error.what());
    std::exit(1);
  }
  return true;
}

int fuzz(const Format& format, uint64_t first, uint64_t count) {
  const TempFolder folder;
  const std::vector<std::string> seeds = format.seeds();
  for (size_t seed = 0; seed < seeds.size(); ++seed)
    if (!reads(format, folder.path(), fmt::format("seed {}", seed), seeds[seed])) {
      std::fprintf(stderr, "%s: refused, though it is whole\n", current_file);
      return 1;
    }
  uint64_t read = 0;
  for (uint64_t number = first; number < first + count; ++number) {
    std::string bytes = Mutation(format, seeds, number).damaged();
    if (format.repair && number % 4 != 0) bytes = format.repair(std::move(bytes));
    read += reads(format, folder.path(), fmt::format("file {}", number), bytes);
  }
  ::alarm(0);
  std::puts(fmt::format("{}: {} of {} files read, the others refused", format.name, read, count).c_str());
  return count > 1000 && (read == 0 || read == count) ? 1 : 0;
}

}  // namespace
}  // namespace sdp::fuzz

int main(int argc, char** argv) {
  using namespace sdp::fuzz;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::vector<Format> all = image_formats();
  std::ranges::copy(other_formats(), std::back_inserter(all));
  const auto format = std::ranges::find(all, arguments.empty() ? "" : arguments[0], &Format::name);
  if (format == all.end()) {
    std::fprintf(stderr, "usage: fuzz_formats FORMAT [FIRST [COUNT]]; formats:\n");
    for (const Format& known : all)
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
