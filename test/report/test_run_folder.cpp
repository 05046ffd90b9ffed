#include <sys/mman.h>

#include <cstring>

#include "catch.h"
#include "checkpoint/temp_folder.h"
#include "report/memory.h"
#include "report/run_folder.h"
#include "spec/error.h"

using namespace sdp;

TEST_CASE("a run gets a new folder, or with resume its old one", "[run_folder]") {
  const TempFolder folder;
  const auto output_dir = folder / "some/runs";
  const RunFolder run = create_run_folder(output_dir, "first", false);
  CHECK(run.dir == output_dir / "first");
  CHECK(std::filesystem::is_directory(run.dir));
  put(run.spec(), "name: first");
  CHECK(create_run_folder(output_dir, "first", false).dir == run.dir);  // nothing that could be lost yet
  put(run.metrics(), "");

  const std::string message = message_of<UsageError>([&] { create_run_folder(output_dir, "first", false); });
  CHECK(contains(message, run.dir.string()));
  CHECK(contains(message, "--resume"));
  CHECK(contains(message, "another name"));

  CHECK(create_run_folder(output_dir, "first", true).dir == run.dir);
  CHECK(get(run.spec()) == "name: first");
  CHECK(std::filesystem::is_directory(create_run_folder(output_dir, "second", true).dir));
}

TEST_CASE("names of a run folder's files", "[run_folder]") {
  const RunFolder run = {"runs/x"};
  CHECK(run.spec() == "runs/x/spec.yaml");
  CHECK(run.plan() == "runs/x/plan.json");
  CHECK(run.metrics() == "runs/x/metrics.jsonl");
  CHECK(run.trace() == "runs/x/trace.jsonl");
  CHECK(run.log() == "runs/x/log.txt");
  CHECK(run.output() == "runs/x/output.txt");
  CHECK(run.summary() == "runs/x/summary.json");
}

TEST_CASE("impossible run folders are refused", "[run_folder]") {
  const TempFolder folder;
  for (const char* name : {"", ".", "..", "a/b", "/a"})
    CHECK_THROWS_AS(create_run_folder(folder.path(), name, true), UsageError);
  put(folder / "file", "");
  CHECK(contains(message_of<UsageError>([&] { create_run_folder(folder / "file", "x", false); }),
                 "cannot make"));
  CHECK(contains(message_of<UsageError>([&] { create_run_folder(folder.path(), "file", true); }),
                 "cannot make"));
}

TEST_CASE("resident memory and its peak follow what a process touches", "[memory]") {
  const int64_t before = resident_bytes();
  constexpr int64_t kTouched = int64_t{64} << 20;
  void* block = mmap(nullptr, kTouched, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(block != MAP_FAILED);
  std::memset(block, 1, kTouched);
  CHECK(resident_bytes() - before > kTouched * 9 / 10);
  CHECK(resident_bytes() - before < kTouched * 3 / 2);
  munmap(block, kTouched);
  CHECK(resident_bytes() - before < kTouched / 2);
  CHECK(peak_resident_bytes() - before > kTouched * 9 / 10);
}
