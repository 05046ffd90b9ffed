#include <unistd.h>

#include "catch.h"
#include "checkpoint/digest.h"
#include "checkpoint/store.h"
#include "checkpoint/temp_folder.h"
#include "spec/error.h"

using namespace sdp;
namespace fs = std::filesystem;

namespace {

Manifest manifest_of(int64_t step) {
  Manifest manifest;
  manifest.step = step;
  manifest.plan_hash = "plan";
  manifest.spec_hash = "spec";
  manifest.workers = 8;
  manifest.replicas = 2;
  manifest.processes = 2;
  manifest.threads = 3;
  manifest.libtorch_version = "2.11.0";
  manifest.program_version = "0.1.0";
  manifest.state = {{"sample_position", 12345678901234}, {"loss", 0.1}, {"name", "größe"}};
  return manifest;
}

/// Writes the files of a checkpoint into its partial folder.
Manifest write_files(const CheckpointStore& store, int64_t step) {
  const fs::path partial = store.begin(step);
  Manifest manifest = manifest_of(step);
  for (int64_t process = 0; process < 2; ++process) {
    const std::string name = process_file_name(process, 2);
    put(partial / name, "data of step " + std::to_string(step) + " and process " + std::to_string(process));
    const FileDigest digest = digest_file(partial / name);
    manifest.files.push_back({name, digest.bytes, digest.xxh3_128});
  }
  return manifest;
}

void save(const CheckpointStore& store, int64_t step, int64_t keep_last = 100) {
  store.commit(step, write_files(store, step), keep_last);
}

size_t names_in(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

using Steps = std::vector<int64_t>;

/// Permissions hold for everyone but root: while this exists, root is another user, who owns what is in
/// `folder`.
class OtherUser {
 public:
  explicit OtherUser(const fs::path& folder) {
    if (geteuid() != 0) return;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
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
  static void change_owner(const fs::path& path) {
    REQUIRE(chown(path.c_str(), kNobody, static_cast<gid_t>(-1)) == 0);
  }
};

}  // namespace

TEST_CASE("a manifest survives its file", "[manifest]") {
  Manifest manifest = manifest_of(7);
  manifest.files = {{"process-00000-of-00002.safetensors", 1234567890123, "00ff"}};
  CHECK(parse_manifest(manifest_text(manifest), "m") == manifest);
  CHECK(process_file_name(0, 4) == "process-00000-of-00004.safetensors");
  CHECK(process_file_name(123456, 200000) == "process-123456-of-200000.safetensors");
}

TEST_CASE("a manifest that is not one is refused with the reason", "[manifest]") {
  const auto refusal = [](auto change) {
    Manifest manifest = manifest_of(7);
    manifest.files = {{"file", 1, "ff"}};
    auto json = nlohmann::ordered_json::parse(manifest_text(manifest));
    change(json);
    return message_of<DataError>([&] { parse_manifest(json.dump(), "where"); });
  };
  CHECK(refusal([](auto&) {}).empty());
  CHECK(contains(refusal([](auto& json) { json["format_version"] = 1; }),
                 "format_version is 1, this program reads 2"));
  for (const char* key : {"format_version", "step", "files", "plan_hash", "spec_hash", "workers", "replicas",
                          "processes", "threads", "libtorch_version", "program_version", "state"})
    CHECK(refusal([&](auto& json) { json.erase(key); }) ==
          "where: the key \"" + std::string(key) + "\" is missing");
  for (const char* key : {"name", "bytes", "xxh3_128"})
    CHECK(contains(refusal([&](auto& json) { json["files"][0].erase(key); }), key));
  CHECK(contains(refusal([](auto& json) { json["step"] = "7"; }), "\"step\" has the unexpected value"));
  CHECK(contains(refusal([](auto& json) { json["files"][0]["name"] = "../x"; }), "\"../x\" is not the name"));
  CHECK(contains(message_of<DataError>([] { parse_manifest("{\"step\": ", "where"); }),
                 "where: not a JSON object"));
}

TEST_CASE("a checkpoint is there after commit and not before", "[store]") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  CHECK_FALSE(store.latest_step().has_value());
  CHECK(store.steps().empty());

  const Manifest manifest = write_files(store, 120);
  CHECK(store.partial_path(120).filename() == ".step-00000120.partial");
  CHECK_FALSE(store.latest_step().has_value());
  store.commit(120, manifest, 2);
  CHECK(store.latest_step() == 120);
  CHECK(store.folder(120) == run / "checkpoints/step-00000120");
  CHECK(get(run / "latest") == "step-00000120\n");
  CHECK(store.read(120, true) == manifest);
  CHECK(names_in(run / "checkpoints") == 1);
  CHECK(names_in(store.folder(120)) == 3);
}

TEST_CASE("begin starts from an empty folder", "[store]") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  put(store.begin(1) / "left over", "x");
  CHECK(names_in(store.begin(1)) == 0);
}

TEST_CASE("the newest keep_last checkpoints stay", "[store]") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  for (const int64_t step : {0, 5, 10})
    save(store, step, 3);
  CHECK(store.steps() == Steps{0, 5, 10});
  save(store, 15, 3);
  CHECK(store.steps() == Steps{5, 10, 15});
  save(store, 20, 1);
  CHECK(store.steps() == Steps{20});
  CHECK(names_in(run / "checkpoints") == 1);
}

TEST_CASE("an old checkpoint that cannot be removed is named, and is no error", "[store]") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  save(store, 10, 2);
  const fs::path stays = store.folder(10);
  fs::create_directory(stays / "in use");
  put(stays / "in use" / "file", "x");
  const OtherUser nobody(run.path());
  fs::permissions(stays / "in use", fs::perms::owner_read | fs::perms::owner_exec);
  const auto commit = [&](int64_t step) { return store.commit(step, write_files(store, step), 1); };
  for (const int64_t step : {20, 20, 30}) {
    const std::vector<std::string> left = commit(step);
    REQUIRE(left.size() == 1);
    CHECK(contains(left.front(), ".step-00000010"));
    CHECK(store.steps() == Steps{step});
  }
  for (const auto& entry : fs::directory_iterator(run / "checkpoints"))
    if (fs::exists(entry.path() / "in use")) fs::permissions(entry.path() / "in use", fs::perms::owner_all);
  CHECK(commit(40).empty());
  CHECK(names_in(run / "checkpoints") == 1);
}

TEST_CASE("the checkpoint just written stays even where newer ones exist", "[store]") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  for (const int64_t step : {10, 20, 30})
    save(store, step);
  save(store, 15, 1);  // resumed from 10
  CHECK(store.latest_step() == 15);
  CHECK(store.steps() == Steps{15, 20, 30});
}

TEST_CASE("a checkpoint of the same step is replaced", "[store]") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  save(store, 10);
  put(store.folder(10) / process_file_name(0, 2), "damaged");
  save(store, 10);
  CHECK(store.read(10, true).step == 10);
  CHECK(names_in(run / "checkpoints") == 1);
}

TEST_CASE("wherever a run stops, the last whole checkpoint is found", "[store]") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  save(store, 10);
  const std::string latest_10 = get(run / "latest");
  const Manifest manifest = write_files(store, 20);

  SECTION("while the files are written") {
    CHECK(store.latest_step() == 10);
  }
  SECTION("after the manifest, before the folder has its name") {
    put(store.partial_path(20) / "manifest.json", manifest_text(manifest));
    CHECK(store.latest_step() == 10);
  }
  SECTION("a folder of that name has no manifest") {
    fs::rename(store.partial_path(20), store.folder(20));
    CHECK(store.latest_step() == 10);
    put(run / "latest", "step-00000020\n");
    CHECK(store.latest_step() == 10);
  }
  SECTION("before `latest` is written: it names the one before, which is whole") {
    store.commit(20, manifest, 100);
    put(run / "latest", latest_10);
    CHECK(store.latest_step() == 10);
  }
  SECTION("in the first checkpoint, before `latest` is written") {
    store.commit(20, manifest, 1);
    fs::remove(run / "latest");
    CHECK(store.latest_step() == 20);
  }
  SECTION("`latest` is empty or names what is not there") {
    store.commit(20, manifest, 100);
    for (const char* text : {"", "step-00000030\n", "../../elsewhere", "step-20"}) {
      put(run / "latest", text);
      CHECK(store.latest_step() == 20);
    }
  }
  SECTION("`latest` is missing and the newest folder is not whole") {
    store.commit(20, manifest, 100);
    fs::remove(run / "latest");
    fs::remove(store.folder(20) / process_file_name(1, 2));
    CHECK(store.latest_step() == 10);
  }
  SECTION("while a checkpoint of the same step is replaced") {
    store.commit(20, manifest, 100);
    fs::rename(store.folder(20), run / "checkpoints/.step-00000020.removed.partial");
    CHECK(store.latest_step() == 10);
  }
  // Whatever was left behind, the run goes on from there and cleans up.
  save(store, 20);
  save(store, 30, 2);
  CHECK(store.latest_step() == 30);
  CHECK(store.steps() == Steps{20, 30});
  CHECK(names_in(run / "checkpoints") == 2);
}

TEST_CASE("commit refuses what is not all there", "[store]") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  const Manifest manifest = write_files(store, 10);
  CHECK_THROWS_AS(store.commit(11, manifest, 1), std::logic_error);
  CHECK_THROWS_AS(store.commit(10, manifest, 0), std::logic_error);
  fs::remove(store.partial_path(10) / process_file_name(1, 2));
  const std::string message = message_of<DataError>([&] { store.commit(10, manifest, 1); });
  CHECK(contains(message, "step 10 was not saved"));
  CHECK(contains(message, process_file_name(1, 2) + " is missing"));
  CHECK_FALSE(store.latest_step().has_value());
}

TEST_CASE("damage is reported with the file, what was expected and what to do", "[store]") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  for (const int64_t step : {5, 10, 20})
    save(store, step);
  const fs::path file = store.folder(20) / process_file_name(1, 2);
  const std::string data = get(file);
  const auto refusal = [&](bool verify_hashes) {
    return message_of<DataError>([&] { store.read(20, verify_hashes); });
  };
  const std::string advice = "Delete " + store.folder(20).string() +
                             " and resume from another checkpoint of this run: step-00000005, step-00000010.";

  SECTION("cut short") {
    put(file, data.substr(0, 10));
    CHECK(refusal(false) ==
          file.string() + " has 10 bytes, the manifest says " + std::to_string(data.size()) + ". " + advice);
  }
  SECTION("a flipped bit") {
    std::string flipped = data;
    flipped[3] ^= 4;
    put(file, flipped);
    CHECK(refusal(false).empty());
    CHECK(contains(refusal(true), file.string() + " has the XXH3-128 hash " + xxh3_128(flipped) +
                                      ", the manifest says " + xxh3_128(data)));
    CHECK(contains(refusal(true), advice));
  }
  SECTION("a missing file") {
    fs::remove(file);
    CHECK(refusal(false) == file.string() + " is missing. " + advice);
  }
  SECTION("a broken manifest is reported, not passed over") {
    put(store.folder(20) / "manifest.json", "{");
    CHECK(store.latest_step() == 20);
    CHECK(contains(refusal(false), (store.folder(20) / "manifest.json").string()));
    CHECK(contains(refusal(false), advice));
  }
  SECTION("the manifest of another step") {
    fs::copy_file(store.folder(10) / "manifest.json", store.folder(20) / "manifest.json",
                  fs::copy_options::overwrite_existing);
    CHECK(contains(refusal(false), "is of step 10, not 20"));
  }
  SECTION("a step that is not there") {
    CHECK(contains(message_of<DataError>([&] { store.read(7, false); }),
                   "step-00000007/manifest.json is missing"));
  }
  SECTION("the only one") {
    fs::remove_all(store.folder(5));
    fs::remove_all(store.folder(10));
    fs::remove(file);
    CHECK(contains(refusal(false), "There is no other checkpoint"));
  }
}
