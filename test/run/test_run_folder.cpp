#include <sys/stat.h>

#include "catch.h"
#include "run/run_folder.h"
#include "run/run_history.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;

namespace {

LockedRunFolder create_locked(const fs::path& output_dir, const std::string& name, bool resume) {
  return create_run_folder(output_dir, name, resume,
                           [](const fs::path& dir) { return RunLock::acquire(dir, [](const auto&) {}); });
}

RunFolder create(const fs::path& output_dir, const std::string& name, bool resume) {
  return create_locked(output_dir, name, resume).folder;  // and the lock is released
}

std::string refusal(const fs::path& output_dir, const std::string& name, bool resume = false) {
  return message_of<UsageError>([&] { create(output_dir, name, resume); });
}

}  // namespace

TEST_CASE("a run gets a new folder, or its existing one if resumed") {
  const TempFolder folder;
  const auto output_dir = folder / "some/runs";
  const RunFolder run = create(output_dir, "first", false);
  CHECK(run.dir == output_dir / "first");
  CHECK(fs::is_directory(run.dir));
  put(run.spec(), "name: first");
  fs::create_directories(run.dir / "checkpoints/.step-00000000.partial");
  CHECK(create(output_dir, "first", false).dir == run.dir);  // no results that could be lost yet
  put(run.metrics(), "{\"kind\":\"start\",\"step\":0}\n");
  CHECK(create(output_dir, "first", false).dir == run.dir);
  put(run.metrics(), "{\"kind\":\"start\",\"step\":0}\n{\"kind\":\"train\",\"step\":1}\n");

  for (const std::string& part :
       {run.dir.string(), std::string("--resume=if-any"), std::string("another name")})
    CHECK(contains(refusal(output_dir, "first"), part));  // there is no checkpoint
  fs::create_directories(run.dir / "checkpoints/step-00000010");
  CHECK(contains(refusal(output_dir, "first"), "with --resume,"));

  CHECK(create(output_dir, "first", true).dir == run.dir);
  CHECK(get(run.spec()) == "name: first");
  CHECK(fs::is_directory(create(output_dir, "second", true).dir));
}

TEST_CASE("new files in a run folder are removed unless they are kept, and existing ones stay") {
  const TempFolder folder;
  const RunFolder run{folder / "some/runs/first"};
  const auto fill = [&](bool keeps) {
    const NewFolders new_folders(run);
    const LockedRunFolder locked = create_locked(run.dir.parent_path(), run.dir.filename(), /*resume=*/true);
    NewFiles new_files(run);
    fs::create_directories(run.dir / "checkpoints/step-00000000");
    put(run.dir / "checkpoints/step-00000000/manifest.json", "{}");
    put(run.spec(), "new");
    if (keeps) new_files.keep();
  };
  fill(/*keeps=*/false);
  CHECK_FALSE(fs::exists(folder / "some"));

  fs::create_directories(run.dir);
  put(run.dir / "notes.txt", "precious");
  fill(/*keeps=*/false);
  CHECK(get(run.dir / "notes.txt") == "precious");
  CHECK(std::distance(fs::directory_iterator(run.dir), fs::directory_iterator()) == 1);

  fs::remove_all(folder / "some");
  fill(/*keeps=*/true);
  CHECK(get(run.spec()) == "new");
  CHECK(fs::exists(run.dir / "checkpoints/step-00000000/manifest.json"));
  CHECK_FALSE(fs::exists(run.lock()));
}

TEST_CASE("impossible run folders, and those of a run that may still continue, are refused") {
  const TempFolder folder;
  for (const char* name : {"", ".", "..", "a/b", "/a"})
    CHECK_THROWS_AS(create(folder.path(), name, true), UsageError);
  put(folder / "file", "");
  CHECK(contains(refusal(folder / "file", "x"), "cannot make"));
  CHECK(contains(refusal(folder.path(), "file", true), "cannot make"));

  const RunFolder run = create(folder.path(), "run", false);
  put(run.metrics(), "results");
  RunOwner elsewhere = this_process();
  elsewhere.machine = "another";
  elsewhere.host = "far-away";
  put(run.lock(), lock_text(elsewhere, 0));
  for (const char* part : {"--resume", "far-away"})  // without waiting for it
    CHECK(contains(refusal(folder.path(), "run"), part));
  CHECK(get(run.lock()) == lock_text(elsewhere, 0));
}

TEST_CASE("links and pipes in place of a run's files are refused") {
  const TempFolder folder;
  const RunFolder run = create(folder.path(), "run", false);
  put(run.spec(), "name: run");
  put(folder / "precious", "precious");
  fs::create_directory(folder / "elsewhere");
  fs::create_directory_symlink(folder / "elsewhere", run.dir / "notes");  // not one of the run's files
  CHECK_NOTHROW(check_run_files(run, /*to_write=*/true));
  const auto check_refused = [&](const fs::path& name, bool also_to_read) {
    INFO(name);
    CHECK_THROWS_AS(create(folder.path(), "run", /*resume=*/true), UsageError);
    CHECK(contains(message_of<UsageError>([&] { check_run_files(run, true); }), name.string()));
    CHECK(message_of<UsageError>([&] { check_run_files(run, false); }).empty() != also_to_read);
    fs::remove(run.dir / name);
  };
  for (const char* name :
       {"metrics.jsonl", "latest", "rank-1.txt", "run.lock", "events.out.tfevents.1.host"}) {
    fs::create_symlink(folder / "precious", run.dir / name);
    check_refused(name, /*also_to_read=*/false);
    REQUIRE(mkfifo((run.dir / name).c_str(), 0600) == 0);
    check_refused(name, /*also_to_read=*/true);
  }
  fs::create_directory_symlink(folder / "elsewhere", run.dir / "checkpoints");
  check_refused("checkpoints", /*also_to_read=*/false);
  CHECK(get(folder / "precious") == "precious");

  fs::create_directory_symlink("run", folder / "other name");
  CHECK(contains(refusal(folder.path(), "other name", true), "is a symbolic link"));
  fs::create_directory_symlink(folder / "elsewhere", folder / "runs");
  CHECK(create(folder / "runs", "run", false).dir == folder / "runs" / "run");
}

// ---- a run's history ----

const DataIdentity kTraining = {.samples = 50, .hash = "aa"};
const DataIdentity kTest = {.samples = 10, .hash = "bb"};

TEST_CASE("a history is read back unchanged") {
  const TempFolder folder;
  const fs::path path = folder / "run.json";
  CHECK_THROWS_AS(read_history(path), DataError);
  RunHistory history = {.id = "0123456789abcdef",
                        .began = "2026-11-22T18:30:00Z",
                        .training_data = kTraining,
                        .test_data = kTest};
  for (const bool full : {false, true}) {
    if (full) history.imported = {.path = "/a/net.safetensors", .bytes = 123, .xxh3_128 = "cc"};
    if (full) history.changes = {{.step = 10, .key = "optimizer.lr", .was = "0.1", .now = "0.01"}};
    put(path, history_text(history));
    CHECK(read_history(path) == history);
  }
  for (const char* text : {"", "[]", "{\"id\": 3}", "{\"id\": \"x\", \"began\": \"\"}"}) {
    put(path, text);
    CHECK(contains(message_of<DataError>([&] { read_history(path); }), path.string()));
  }
}

TEST_CASE("a history grows by the changes between the parts of a run") {
  const SpecChange lr = {.key = "optimizer.lr", .saved = "0.1", .now = "0.01"};
  RunHistory history = new_history();
  const std::string id = history.id;
  CHECK(id.size() == 16);
  CHECK(new_history().id != id);
  continue_history(history, 0, {lr}, kTraining, kTest);  // no step was trained with 0.1
  CHECK(history.changes.empty());
  CHECK(history.training_data == kTraining);
  CHECK(history.test_data == kTest);
  continue_history(history, 10, {lr}, kTraining, kTest);
  continue_history(history, 20, {}, kTraining, {.samples = 10, .hash = "dd"});
  CHECK(history.id == id);
  CHECK(history.changes ==
        std::vector<RunChange>{{.step = 10, .key = "optimizer.lr", .was = "0.1", .now = "0.01"},
                               {.step = 20, .key = "test_data", .was = "bb", .now = "dd"}});
  CHECK(history.test_data.hash == "dd");
}
