#pragma once

#include <unistd.h>

#include <filesystem>

#include "catch.h"

namespace sdp {

/// Permissions apply to everyone but root: while this object exists, root acts as another user, who owns the
/// contents of `folder`.
class OtherUser {
 public:
  explicit OtherUser(const std::filesystem::path& folder) {
    if (geteuid() != 0) return;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      change_owner(entry.path());
    change_owner(folder);
    REQUIRE(seteuid(kNobody) == 0);
  }
  ~OtherUser() {
    if (getuid() == 0) (void)!seteuid(0);
  }
  OtherUser(const OtherUser&) = delete;
  OtherUser& operator=(const OtherUser&) = delete;

 private:
  static constexpr uid_t kNobody = 65534;
  static void change_owner(const std::filesystem::path& path) {
    REQUIRE(chown(path.c_str(), kNobody, static_cast<gid_t>(-1)) == 0);
  }
};

}  // namespace sdp
