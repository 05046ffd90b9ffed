#include "comm/meeting_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "io/file.h"
#include "spec/error.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;
constexpr const char* kAnnouncement = ".rendezvous";
constexpr std::chrono::milliseconds kPoll{20};

/// Not open if there is no such file, or another user's.
Socket open_own(const fs::path& path) {
  Socket file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open() && errno != ENOENT) throw_io_error("open", path, errno);
  struct stat status = {};
  return fstat(file.descriptor(), &status) == 0 && status.st_uid == geteuid() ? std::move(file) : Socket();
}

Socket create(const fs::path& path) {
  fs::remove(path);
  Socket file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600));
  if (!file.is_open()) throw_io_error("create", path, errno);
  return file;
}

/// Whether another open file holds the exclusive lock. c10d's FileStore uses locks of the same kind.
bool is_held(const Socket& file) {
  return flock(file.descriptor(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

fs::path store_file(const fs::path& folder) {
  return fs::absolute(folder / kAnnouncement) += ".store";
}

Announcement::Announcement(const fs::path& folder) try : path_(folder / kAnnouncement) {
  fs::create_directories(folder);
  if (is_held(open_own(path_)))
    throw UsageError(
        fmt::format("Another process is rank 0 of a job that meets through {}. Two jobs cannot "
                    "have one run folder: set another name for one of them.",
                    path_.string()));
  create(store_file(folder));
  const fs::path draft = fs::path(path_) += ".new";
  lock_ = create(draft);
  if (flock(lock_.descriptor(), LOCK_EX | LOCK_NB) != 0)
    problem_ = std::strerror(errno);
  else if (!is_held(open_own(draft)))
    problem_ = "locks have no effect there";
  if (!problem_.empty() && write(lock_.descriptor(), "-", 1) != 1) throw_io_error("write", draft, errno);
  fs::rename(draft, path_);
} catch (const fs::filesystem_error& error) {
  throw_io_error("write", error.path1(), error.code().value());
}

Announcement::~Announcement() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

bool await_announcement(const fs::path& folder, Deadline deadline) {
  const fs::path path = fs::absolute(folder / kAnnouncement);
  for (;;) {
    const Socket file = open_own(path);
    struct stat status = {};
    if (file.is_open() && fstat(file.descriptor(), &status) == 0 && status.st_size > 0) return false;
    if (is_held(file)) return true;
    if (std::chrono::steady_clock::now() >= deadline)
      throw std::runtime_error(
          fmt::format("no running rank 0 has {}. All processes must see the same run folder, on a file "
                      "system whose locks "
                      "work between hosts",
                      path.string()));
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace sdp
