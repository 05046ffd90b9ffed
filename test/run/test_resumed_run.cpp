#include <map>

#include "catch.h"
#include "io/file.h"
#include "run/checkpoint_store.h"
#include "run/resumed_run.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

constexpr auto kWithCheckpoint = {Resume::kLatest, Resume::kLatestGood, Resume::kIfAny};

/// Saves a checkpoint of one process, whose file has a few bytes. Returns the path of that file.
std::filesystem::path save(const std::filesystem::path& run_dir, int64_t step,
                           std::map<std::string, std::string> more = {}) {
  const CheckpointStore store(run_dir);
  const std::string name = process_file_name(0, 1);
  more[name] = "values";
  Manifest manifest;
  manifest.step = manifest.updates = step;
  store.begin(step);
  for (const auto& [file, text] : more) {  // the process's file is the first by name
    put(store.partial_path(step) / file, text);
    const FileDigest digest = digest_file(store.partial_path(step) / file);
    manifest.files.push_back({file, digest.bytes, digest.xxh3_128});
  }
  store.commit(step, manifest, /*keep_last=*/1);
  return store.folder(step) / name;
}

}  // namespace

TEST_CASE("a run without a checkpoint can be started but not resumed", "[resumed_run]") {
  const TempFolder folder;
  const std::filesystem::path run_dir = folder / "run";
  for (const bool exists : {false, true}) {
    if (exists) CheckpointStore(run_dir).begin(10);  // a partial checkpoint does not count
    CHECK_FALSE(finds_checkpoint(run_dir, Resume::kNo));
    CHECK_FALSE(finds_checkpoint(run_dir, Resume::kIfAny));
    for (const Resume resume : {Resume::kLatest, Resume::kLatestGood}) {
      const std::string refusal = message_of<UsageError>([&] { finds_checkpoint(run_dir, resume); });
      CHECK(contains(refusal, run_dir.string()));
      CHECK(contains(refusal, "without --resume"));
    }
  }
}

TEST_CASE("a run with a checkpoint continues, and does not start anew if the checkpoint is damaged",
          "[resumed_run]") {
  const TempFolder folder;
  const std::filesystem::path file = save(folder.path(), 10);
  CHECK_FALSE(finds_checkpoint(folder.path(), Resume::kNo));
  for (const Resume resume : kWithCheckpoint)
    CHECK(finds_checkpoint(folder.path(), resume));
  put(file, "cut");
  CHECK(finds_checkpoint(folder.path(), Resume::kIfAny));  // `latest` names it; reading it reports the damage
  std::filesystem::remove(folder / "latest");
  for (const Resume resume : kWithCheckpoint)
    CHECK_THROWS_AS(finds_checkpoint(folder.path(), resume), DataError);
}

TEST_CASE("a checkpoint identifies its run; one of an older version begins a new history", "[resumed_run]") {
  const TempFolder folder;
  const CheckpointStore store(folder.path());
  const std::string spec = "name: r\nseed: 4\ndata: {name: cifar10, path: p}\n";
  RunHistory history = new_history();
  history.changes = {{.step = 5, .key = "optimizer.lr", .was = "1", .now = "2"}};
  save(folder.path(), 10, {{kSavedSpec, spec}, {kSavedHistory, history_text(history)}});
  CHECK(read_saved_run(store, 10).history == history);
  CHECK(read_saved_run(store, 10).spec.seed == 4);
  save(folder.path(), 20, {{kSavedSpec, spec}});
  const RunHistory fresh = read_saved_run(store, 20).history;
  CHECK(fresh.changes.empty());
  CHECK(fresh.id.size() == history.id.size());
  CHECK(fresh.id != history.id);
}
