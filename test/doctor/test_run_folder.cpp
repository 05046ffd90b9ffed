// Run folders without faults, and those that cannot be created.

#include "catch.h"
#include "comm/thread_ranks.h"
#include "doctor/checks.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;

namespace {

/// The finding of three ranks on two hosts.
Finding run_folder(const fs::path& parent) {
  Finding finding;
  run_thread_ranks(3, [&](Communicator& comm) {
    const std::string host = comm.rank() == 0 ? "a" : "b";
    const Agreed agreed = agree(comm, "run folder", [&] { return check_run_folder(comm, parent, host); });
    if (comm.rank() == 0) finding = agreed.finding;
  });
  return finding;
}

}  // namespace

TEST_CASE(
    "a run folder is locked, seen and written to by all, made where it is missing, and left unchanged") {
  const TempFolder temp;
  for (const fs::path& parent : {temp.path(), temp / "runs/deep"}) {
    const Finding finding = run_folder(parent);
    INFO(finding.detail);
    CHECK(finding.status == Status::kPass);
    CHECK(contains(finding.detail, temp.path().string()));
    CHECK(fs::is_empty(temp.path()));
  }
}

TEST_CASE("a run folder that cannot be created fails on all ranks with the reason") {
  const Finding finding = run_folder("/proc");
  CHECK(finding.status == Status::kFail);
  CHECK(contains(finding.detail, "/proc"));
  CHECK_FALSE(contains(finding.detail, "rank"));
  const TempFolder temp;
  const fs::path file = temp.write("file", "x");
  CHECK(run_folder(file).status == Status::kFail);
  CHECK(fs::exists(file));
}
