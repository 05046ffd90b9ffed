#pragma once

// Processes that share a folder meet through a file there, which only their user can read, and not at a port
// that others can reach. Internal to comm/; does not depend on LibTorch.

#include <filesystem>
#include <string>

#include "comm/sockets.h"

namespace sdp {

/// The file of the store through which processes meet in the folder.
std::filesystem::path store_file(const std::filesystem::path& folder);

/// Rank 0's announcement of a new store file: a file beside it that is locked while this object exists.
/// Without the lock, it is left over from processes that were killed.
class Announcement {
 public:
  /// Creates the folder if it is missing and announces an empty store file. Throws UsageError if there is an
  /// announcement already, and DataError if the folder cannot be written.
  explicit Announcement(const std::filesystem::path& folder);
  ~Announcement();
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

  /// Why files in the folder cannot be locked; "" if they can. The announcement says the same.
  const std::string& problem() const { return problem_; }

 private:
  std::filesystem::path path_;
  Socket lock_;
  std::string problem_;
};

/// Waits for rank 0's announcement. Returns false if files in the folder cannot be locked. Throws
/// std::runtime_error at the deadline.
bool await_announcement(const std::filesystem::path& folder, Deadline deadline);

}  // namespace sdp
