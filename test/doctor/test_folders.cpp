// Folders without faults, and each possible fault.

#include <array>
#include <fstream>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "doctor/doctor.h"
#include "doctor/folders.h"
#include "doctor/network.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;

namespace {

void write_file(const fs::path& path, size_t bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << std::string(bytes, 'x');
}

/// The finding of three ranks on these hosts.
Finding run_folder(const fs::path& parent, const std::vector<std::string>& hosts = {"a", "a", "a"}) {
  Finding finding;
  run_thread_ranks(3, [&](Communicator& comm) {
    const Agreed agreed = agree(comm, "run folder", [&] { return check_run_folder(comm, parent, hosts); });
    if (comm.rank() == 0) finding = agreed.finding;
  });
  return finding;
}

}  // namespace

TEST_CASE("a data folder's files are read, including those in subfolders") {
  const TempFolder temp;
  write_file(temp.path() / "a.bin", 1000);
  write_file(temp.path() / "deep" / "er" / "b.bin", 2000);
  const Finding finding = check_data_folder(temp.path());
  CHECK(finding.status == Status::kPass);
  CHECK(contains(finding.detail, "2 files"));
  CHECK(contains(check_data_folder(temp.path(), /*limit_s=*/10, /*limit_bytes=*/500).detail,
                 "500 B of 1 file"));
}

TEST_CASE("a data folder that is missing, empty or unreadable fails") {
  const TempFolder temp;
  CHECK(check_data_folder(temp.path() / "none").status == Status::kFail);
  CHECK(check_data_folder(temp.path()).status == Status::kFail);
  write_file(temp.path() / "empty", 0);
  CHECK(check_data_folder(temp.path()).status == Status::kFail);
  fs::create_symlink("/nowhere/at/all", temp.path() / "link");
  CHECK_THROWS_AS(check_data_folder(temp.path()), DataError);
}

TEST_CASE("a run folder is written to, locked, seen by all, and left unchanged") {
  const TempFolder temp;
  const Finding finding = run_folder(temp.path());
  INFO(finding.detail);
  CHECK(finding.status == Status::kPass);
  CHECK(fs::is_empty(temp.path()));
}

TEST_CASE("every host writes into the run folder") {
  const TempFolder temp;
  const std::vector<std::string> hosts = {"a", "b", "b"};
  std::array<Finding, 3> findings;
  run_thread_ranks(3, [&](Communicator& comm) {
    findings[static_cast<size_t>(comm.rank())] = check_run_folder(comm, temp.path(), hosts);
  });
  CHECK(findings[0].status == Status::kPass);
  CHECK(findings[1].status == Status::kPass);
  CHECK(findings[2].status == Status::kSkip);
}

TEST_CASE("a run folder that cannot be created fails on all ranks with the reason") {
  CHECK(contains(run_folder("/proc").detail, "/proc"));
  CHECK(run_folder("/proc").status == Status::kFail);
  const TempFolder temp;
  write_file(temp.path() / "file", 1);
  CHECK(run_folder(temp.path() / "file").status == Status::kFail);
  CHECK(fs::exists(temp.path() / "file"));
}

TEST_CASE("a missing run folder that a run would create is created, and removed again") {
  const TempFolder temp;
  CHECK(run_folder(temp.path() / "runs" / "deep").status == Status::kPass);
  CHECK(fs::is_empty(temp.path()));
}

TEST_CASE("one process per host looks at a folder") {
  const std::vector<std::string> hosts = {"a", "a", "b", "a", "b"};
  std::vector<int> firsts;
  for (int rank = 0; rank < 5; ++rank)
    if (is_first_of_host(hosts, rank)) firsts.push_back(rank);
  CHECK(firsts == std::vector<int>{0, 2});
}

TEST_CASE("the interface of an address is found") {
  CHECK(interface_of("127.0.0.1") == "lo");
  CHECK(interface_of("127.0.1.1") == "lo");
  CHECK(interface_of("192.0.2.1").empty());  // reserved for documentation (RFC 5737)
  CHECK(gloo_interface(Ranks{}).empty());
}
