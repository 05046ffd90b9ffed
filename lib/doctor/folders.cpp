#include "doctor/folders.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "io/file.h"
#include "process/identity.h"
#include "spec/error.h"
#include "subnet/random_bits.h"
#include "text/units.h"
#include "train/shared_run_folder.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kDataCheck = "data folder";
constexpr const char* kRunCheck = "run folder";
constexpr size_t kBlockBytes = size_t{1} << 20;
/// Long enough for NFS to show a new name to a host that has not requested it before.
constexpr std::chrono::seconds kVisibleAfterLooking{15};

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

/// Share of the file's first `bytes` that is in the page cache.
double share_in_memory(int descriptor, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return 1;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  const bool told = mincore(mapped, size, pages.data()) == 0;
  munmap(mapped, size);
  if (!told) return 1;
  const auto in_memory =
      std::count_if(pages.begin(), pages.end(), [](unsigned char bits) { return bits & 1; });
  return static_cast<double>(in_memory) / static_cast<double>(pages.size());
}

struct Reading {
  int64_t bytes = 0;
  int64_t files = 0;
  double cached_bytes = 0;  ///< bytes that were in memory although the kernel was asked to drop them
  double seconds = 0;
};

/// Reads one file, up to the given number of bytes, and adds it to the totals.
void read_file(const fs::path& path, int64_t most_bytes, double limit_s, Reading& reading) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) throw_io_error("open", path, errno);
  const auto bytes = std::min(static_cast<int64_t>(fs::file_size(path)), most_bytes);
  if (bytes == 0) return;
  posix_fadvise(file.number(), 0, 0, POSIX_FADV_DONTNEED);
  reading.cached_bytes += share_in_memory(file.number(), bytes) * static_cast<double>(bytes);
  std::vector<std::byte> block(kBlockBytes);
  const auto began = Clock::now();
  for (int64_t done = 0; done < bytes && reading.seconds + seconds_since(began) < limit_s;) {
    const ssize_t got = read(file.number(), block.data(),
                             static_cast<size_t>(std::min(static_cast<int64_t>(block.size()), bytes - done)));
    if (got < 0) throw_io_error("read", path, errno);
    if (got == 0) break;
    done += got;
    reading.bytes += got;
  }
  reading.seconds += seconds_since(began);
  ++reading.files;
}

/// Files below the folder, in the file system's order; not all of them if there are very many.
std::vector<fs::path> files_below(const fs::path& folder) {
  constexpr size_t kMostFiles = 2000;
  constexpr double kMostSeconds = 2;
  std::vector<fs::path> files;
  const auto began = Clock::now();
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    // A dangling link counts as a file that cannot be read.
    if (!entry.is_directory()) files.push_back(entry.path());
    if (files.size() == kMostFiles || seconds_since(began) > kMostSeconds) break;
  }
  return files;
}

std::string rate_text(double bytes, double seconds) {
  return format_count(bytes / std::max(seconds, 1e-9)) + "B/s";
}

/// The bytes of block number `block`: pseudo-random, so that no file system can compress them.
std::vector<std::byte> block_of(uint64_t block) {
  std::vector<std::byte> bytes(kBlockBytes);
  RandomBits random(block);
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t bits = random.next();
    std::memcpy(bytes.data() + i, &bits, sizeof(bits));
  }
  return bytes;
}

/// A folder that the destructor removes with its contents, and with the parent folders that it created,
/// unless they contain anything else.
class TrialFolder {
 public:
  explicit TrialFolder(fs::path path) : path_(std::move(path)) {
    for (fs::path above = path_.parent_path(); above.has_relative_path() && !fs::exists(above);
         above = above.parent_path())
      made_.push_back(above);
    std::error_code error;
    if (!fs::create_directories(path_, error)) {
      remove();
      throw_io_error("make a folder", path_, error ? error.value() : EEXIST);
    }
  }
  ~TrialFolder() { remove(); }
  TrialFolder(const TrialFolder&) = delete;
  TrialFolder& operator=(const TrialFolder&) = delete;

 private:
  void remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    for (const fs::path& above : made_)
      fs::remove(above, ignored);  // only an empty one
  }

  fs::path path_;
  std::vector<fs::path> made_;  ///< innermost first
};

std::unique_ptr<RunLock> lock_alone(const fs::path& folder) {
  const auto silent = [](const std::string&) {};
  std::unique_ptr<RunLock> lock = RunLock::acquire(folder, silent);
  try {
    (void)RunLock::acquire(folder, silent);
  } catch (const UsageError&) {
    return lock;  // the expected result
  }
  throw DataError(fmt::format("{}: two runs could lock the same run folder", folder.string()));
}

}  // namespace

bool is_first_of_host(const std::vector<std::string>& hosts, int rank) {
  const auto own = hosts.begin() + rank;
  return std::find(hosts.begin(), own, *own) == own;
}

Finding check_data_folder(const fs::path& folder, double limit_s, int64_t limit_bytes) {
  constexpr const char* kAdvice = "Give the folder of data.path as this host sees it.";
  if (!fs::is_directory(folder))
    return failed(kDataCheck, fmt::format("{} is not a folder", folder.string()), kAdvice);
  Reading reading;
  const std::vector<fs::path> files = files_below(folder);
  for (const fs::path& file : files) {
    if (reading.seconds >= limit_s || reading.bytes >= limit_bytes) break;
    read_file(file, limit_bytes - reading.bytes, limit_s, reading);
  }
  if (reading.bytes == 0)
    return failed(kDataCheck, fmt::format("{} contains no file that is not empty", folder.string()), kAdvice);
  std::string text = fmt::format("{}: {} ({:.0f} files/s), {} of {} file{}", folder.string(),
                                 rate_text(static_cast<double>(reading.bytes), reading.seconds),
                                 static_cast<double>(reading.files) / std::max(reading.seconds, 1e-9),
                                 format_bytes(reading.bytes), reading.files, reading.files == 1 ? "" : "s");
  const double cached = reading.cached_bytes / static_cast<double>(reading.bytes);
  if (cached > 0.05) text += fmt::format(", {} of it from memory", format_percent(std::min(1.0, cached)));
  return pass(kDataCheck, text);
}

Finding check_writing(const fs::path& folder, int64_t bytes) {
  const fs::path written = folder / (random_id() + ".part");
  const fs::path renamed = folder / (random_id() + ".bin");
  const auto blocks = static_cast<uint64_t>(bytes) / kBlockBytes;
  const auto began = Clock::now();
  {
    OutputFile file(written, OutputFile::Mode::kNew);
    for (uint64_t block = 0; block < blocks; ++block)
      file.write(block_of(block));
    file.sync();
  }
  const double seconds = seconds_since(began);
  std::error_code error;
  fs::rename(written, renamed, error);
  if (error) throw_io_error("rename", written, error.value());
  sync_folder(folder);
  const InputFile file(renamed);
  std::vector<std::byte> back(kBlockBytes);
  for (uint64_t block = 0; block < blocks; ++block) {
    file.read_at(static_cast<int64_t>(block * kBlockBytes), back);
    if (back != block_of(block))
      return failed(kRunCheck,
                    fmt::format("reading back from {} gives other bytes than were written", folder.string()),
                    "Use another file system; checkpoints would be damaged on this one.");
  }
  fs::remove(renamed, error);
  if (error) throw_io_error("remove", renamed, error.value());
  return pass(kRunCheck, fmt::format("{} written with fsync, {} free",
                                     rate_text(static_cast<double>(blocks * kBlockBytes), seconds),
                                     format_bytes(static_cast<int64_t>(fs::space(folder).available))));
}

Finding check_run_folder(Communicator& comm, const fs::path& parent, const std::vector<std::string>& hosts) {
  // Every rank takes part in all collectives, whatever has failed before.
  const bool is_first = comm.rank() == 0;
  const std::string id = comm.all_gather_strings(is_first ? random_id() : "").front();
  const fs::path folder = fs::absolute(parent).lexically_normal() / (".sdp-train-doctor-" + id);
  std::optional<TrialFolder> trial;
  Finding finding = skipped(kRunCheck, "");
  {
    std::optional<SharedRunFolder> shared;
    try {
      shared = share_run_folder(
          comm, RunFolder{folder}, {.host = hosts[static_cast<size_t>(comm.rank())], .threads = 1},
          [&] {
            trial.emplace(folder);
            return lock_alone(folder);
          },
          kVisibleAfterLooking);
      if (is_first_of_host(hosts, comm.rank())) finding = check_writing(folder);
    } catch (const PeerLostError&) {
      throw;
    } catch (const std::exception& error) {
      finding =
          failed(kRunCheck, error.what(),
                 "Runs write checkpoints there: choose a folder (--output, and output.dir of the run) that "
                 "all hosts see and may write to.");
    }
    comm.barrier();  // all writing has finished
  }
  trial.reset();
  if (finding.status == Status::kPass)
    finding.detail = fmt::format("{}: {}", fs::absolute(parent).lexically_normal().string(), finding.detail);
  return finding;
}

}  // namespace sdp
