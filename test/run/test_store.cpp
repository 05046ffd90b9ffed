#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <tuple>

#include "catch.h"
#include "io/file.h"
#include "other_user.h"
#include "run/checkpoint_store.h"
#include "spec/error.h"
#include "spec/hash.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Steps = std::vector<int64_t>;

namespace {

std::vector<fs::path>* synced = nullptr;  // what fsync was called for

}  // namespace

/// In place of the C library's.
extern "C" int fsync(int descriptor) {
  if (synced) synced->push_back(fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor)));
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace {

Manifest manifest_of(int64_t step) {
  Manifest manifest;
  manifest.step = step;
  manifest.updates = step - std::min<int64_t>(step, 2);
  manifest.skipped_steps = step - manifest.updates;
  manifest.batch_norm_updates = 3 * manifest.updates + 1000;
  manifest.origin = {2, 1, 12345678901, /*batch_norm_updates=*/1000, /*epochs=*/0.1, /*warmup=*/2.7};
  manifest.metrics_lines = 3;
  manifest.training_data = {12345678901234, "größe"};
  manifest.test_data = {7, "test"};
  manifest.plan_hash = "plan";
  manifest.workers = 8;
  manifest.replicas = 2;
  manifest.processes = 2;
  manifest.threads = 3;
  manifest.libtorch_version = "2.11.0";
  manifest.program_version = "0.1.0";
  return manifest;
}

void add(Manifest& manifest, const fs::path& folder, const std::string& name) {
  const FileDigest digest = digest_file(folder / name);
  manifest.files.push_back({name, digest.bytes, digest.xxh3_128});
}

/// Writes the files of a checkpoint into its partial folder.
Manifest write_files(const CheckpointStore& store, int64_t step) {
  const fs::path partial = store.begin(step);
  Manifest manifest = manifest_of(step);
  for (int64_t process = 0; process < 2; ++process) {
    const std::string name = process_file_name(process, 2);
    put(partial / name, "data of step " + std::to_string(step) + " and process " + std::to_string(process));
    add(manifest, partial, name);
  }
  for (const char* name : {kSavedSpec, kSavedPlan}) {
    put(partial / name, std::string(name) + " of step " + std::to_string(step));
    add(manifest, partial, name);
  }
  return manifest;
}

void save(const CheckpointStore& store, int64_t step, int64_t keep_last = 100) {
  store.commit(step, write_files(store, step), keep_last);
}

/// With another bit in its fourth byte.
std::string flip(std::string text) {
  return text.replace(3, 1, 1, static_cast<char>(text[3] ^ 4));
}

size_t entries_of(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

/// The manifest with a correct digest, as if somebody had changed a number and updated the digest.
std::string sealed(Json fields) {
  const std::string zeros(32, '0');
  fields["xxh3_128"] = zeros;
  std::string text = fields.dump(2) + "\n";
  return text.replace(text.rfind(zeros), zeros.size(), xxh3_128(text));
}

Manifest manifest_with_files() {
  Manifest manifest = manifest_of(7);
  for (int64_t process = 0; process < 2; ++process)
    manifest.files.push_back({process_file_name(process, 2), 1234567890123, "00ff"});
  return manifest;
}

}  // namespace

TEST_CASE("a commit syncs every file before the name under which it counts, and then that name") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  const Manifest manifest = write_files(store, 4);
  const fs::path partial = store.partial_path(4), checkpoints = partial.parent_path();
  std::vector<fs::path> calls;
  synced = &calls;
  store.commit(4, manifest, /*keep_last=*/1, {});
  synced = nullptr;
  const fs::path new_manifest = partial / (std::string(kManifestName) + ".tmp");
  CHECK(calls ==
        std::vector<fs::path>{partial, new_manifest, partial, checkpoints, run / "latest.tmp", run.path()});
}

TEST_CASE("a manifest is read back from its file, whose hash it contains") {
  const Manifest manifest = manifest_with_files();
  const std::string text = manifest_text(manifest);
  CHECK(parse_manifest(text, "m") == manifest);
  CHECK(sealed(Json::parse(text)) == text);
  CHECK(process_file_name(0, 4) == "process-00000-of-00004.safetensors");
  CHECK(process_file_name(123456, 200000) == "process-123456-of-200000.safetensors");
}

TEST_CASE("an invalid or contradictory manifest is refused, naming the key") {
  const auto whole = Json::parse(manifest_text(manifest_with_files()));
  const auto refusal = [&](const std::string& path, const Json& value) {  // without a value, it is removed
    const Json change = {{"op", value.is_null() ? "remove" : "replace"}, {"path", path}, {"value", value}};
    const std::string text = sealed(whole.patch(Json::array({change})));
    return message_of<DataError>([&] { parse_manifest(text, "where"); });
  };
  CHECK(refusal("/step", 7).empty());
  CHECK(refusal("/origin/warmup", {}).empty());  // of an older program
  using Refused = std::tuple<std::string, Json, std::string>;
  std::vector<Refused> cases = {Refused("/origin/samples", {}, "origin"),
                                Refused("/test_data/hash", {}, "test_data"),
                                Refused("/format_version", 4, "4"), Refused("/files/0/bytes", {}, "bytes"),
                                Refused("/files/0/name", "../x", "../x")};
  using Numbers = std::pair<const char*, Steps>;
  for (const auto& [path, values] :
       {Numbers{"/updates", {6, 4, INT64_MAX}}, Numbers{"/skipped_steps", {1}},
        Numbers{"/batch_norm_updates", {999}}, Numbers{"/step", {8}}, Numbers{"/workers", {0, 3}},
        Numbers{"/replicas", {0}}, Numbers{"/processes", {0, 1, 4}}})
    for (const int64_t value : values)
      cases.push_back({path, value, "contradict"});
  for (const auto& [key, value] : whole.items())
    for (const Json& wrong : {Json(), Json(-1), Json(true)})
      if (key != "xxh3_128") cases.push_back({"/" + key, wrong, "\"" + key + "\""});
  for (const auto& [path, value, says] : cases) {
    INFO(path << " " << value);
    CHECK(contains(refusal(path, value), says));
  }
  CHECK(contains(message_of<DataError>([] { parse_manifest("{\"step\": ", "where"); }), "where: "));
}

TEST_CASE("a checkpoint exists after commit and not before, and the newest keep_last stay") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  CHECK(store.steps().empty());
  put(store.begin(120) / "left over", "x");
  const Manifest manifest = write_files(store, 120);
  CHECK_FALSE(store.latest_step().has_value());
  store.commit(120, manifest, 2);
  CHECK(store.latest_step() == 120);
  CHECK(store.folder(120) == run / "checkpoints/step-00000120");
  CHECK(get(run / "latest") == "step-00000120\n");
  CHECK(store.read(120, true) == manifest);
  CHECK(entries_of(run / "checkpoints") == 1);
  CHECK(entries_of(store.folder(120)) == 5);

  save(store, 125, 3);
  save(store, 130, 3);
  CHECK(store.steps() == Steps{120, 125, 130});
  save(store, 135, 3);
  CHECK(store.steps() == Steps{125, 130, 135});
  save(store, 127, 1);  // resumed from 125: newer ones stay
  CHECK(store.latest_step() == 127);
  CHECK(store.steps() == Steps{127, 130, 135});
  put(store.folder(135) / process_file_name(0, 2), "damaged");
  save(store, 135, 1);  // replaces that of the same step
  CHECK(store.read(135, true).step == 135);
  CHECK(entries_of(run / "checkpoints") == 1);
}

TEST_CASE("an old checkpoint that cannot be removed is named but is not an error") {
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
  CHECK(entries_of(run / "checkpoints") == 1);
}

TEST_CASE("wherever a run stops, the last complete checkpoint is found") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  save(store, 10);
  const std::string latest_10 = get(run / "latest");
  const Manifest manifest = write_files(store, 20);
  CHECK(store.latest_step() == 10);
  SECTION("before the folder with the manifest is renamed") {
    put(store.partial_path(20) / "manifest.json", manifest_text(manifest));
    CHECK(store.latest_step() == 10);
  }
  SECTION("a folder of that name has no manifest") {
    fs::rename(store.partial_path(20), store.folder(20));
    CHECK(store.latest_step() == 10);
    put(run / "latest", "step-00000020\n");
    CHECK(store.latest_step() == 10);
  }
  SECTION("`latest` is still that of the previous checkpoint, empty, of no checkpoint or missing") {
    store.commit(20, manifest, 100);
    for (const std::string& text : {latest_10, std::string(), std::string("step-00000030\n"),
                                    std::string("../../elsewhere"), std::string("step-20")}) {
      put(run / "latest", text);
      CHECK(store.latest_step() == (text == latest_10 ? 10 : 20));
    }
    fs::remove(run / "latest");
    CHECK(store.latest_step() == 20);
    fs::remove(store.folder(20) / process_file_name(1, 2));  // the newest folder is incomplete, too
    CHECK(store.latest_step() == 10);
  }
  SECTION("while a checkpoint of the same step is replaced") {
    store.commit(20, manifest, 100);
    fs::rename(store.folder(20), run / "checkpoints/.step-00000020.removed.partial");
    CHECK(store.latest_step() == 10);
  }
  // Whatever was left behind, the run continues from there and cleans up.
  save(store, 20);
  save(store, 30, 2);
  CHECK(store.latest_step() == 30);
  CHECK(store.steps() == Steps{20, 30});
  CHECK(entries_of(run / "checkpoints") == 2);
}

TEST_CASE("commit refuses an incomplete checkpoint") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  const Manifest manifest = write_files(store, 10);
  CHECK_THROWS_AS(store.commit(11, manifest, 1), std::logic_error);
  CHECK_THROWS_AS(store.commit(10, manifest, 0), std::logic_error);
  fs::remove(store.partial_path(10) / process_file_name(1, 2));
  CHECK(contains(message_of<DataError>([&] { store.commit(10, manifest, 1); }), process_file_name(1, 2)));
  CHECK_FALSE(store.latest_step().has_value());
}

TEST_CASE("damage is reported with the file, the expected value and what to do") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  for (const int64_t step : {5, 10, 20})
    save(store, step);
  const fs::path file = store.folder(20) / process_file_name(1, 2), plan = store.folder(20) / kSavedPlan;
  const fs::path manifest = store.folder(20) / "manifest.json";
  const std::string data = get(file), flipped = flip(data);
  const auto check = [&](const std::string& part, bool verify_hashes = false) {
    const auto text = message_of<DataError>([&] { store.read(20, verify_hashes); });
    for (const std::string& each :
         {part, std::string("step-00000005, step-00000010"), std::string("--resume=latest-good")})
      CHECK(contains(text, each));
  };
  put(plan, flip(get(plan)));  // describes the run: its hash is always verified
  for (const bool verify_hashes : {false, true})
    check(plan.string(), verify_hashes);
  CHECK_THROWS_AS(store.verified_file(20, kSavedPlan), DataError);
  CHECK(store.verified_file(20, kSavedSpec) == store.folder(20) / kSavedSpec);
  put(plan, flip(get(plan)));
  put(file, flipped);
  CHECK_NOTHROW(store.read(20, /*verify_hashes=*/false));
  for (const std::string& hash : {xxh3_128(flipped), xxh3_128(data)})
    check(hash, true);
  put(file, data.substr(0, 10));
  check(file.string());
  fs::remove(file);
  check(file.string());
  put(manifest, "{");
  CHECK(store.latest_step() == 20);  // reported, not skipped
  check(manifest.string());
  put(manifest, get(store.folder(10) / "manifest.json"));
  check(manifest.string());
  CHECK(contains(message_of<DataError>([&] { store.read(7, false); }), "step-00000007/manifest.json"));
  fs::remove_all(store.folder(5));
  fs::remove_all(store.folder(10));
  CHECK_FALSE(contains(message_of<DataError>([&] { store.read(20, false); }), "latest-good"));
}

TEST_CASE("the newest checkpoint that verifies is found, and skipped ones are reported") {
  const TempFolder run;
  const CheckpointStore store(run.path());
  std::vector<std::string> passed_over;
  const auto latest_good = [&](bool verify_hashes = true) {
    passed_over.clear();
    return store.latest_good_step(verify_hashes,
                                  [&](const std::string& what) { passed_over.push_back(what); });
  };
  CHECK_FALSE(latest_good().has_value());
  for (const int64_t step : {10, 20, 30, 40})
    save(store, step);
  CHECK(latest_good() == 40);
  CHECK(passed_over.empty());

  const fs::path file = store.folder(40) / process_file_name(1, 2);
  put(file, flip(get(file)));
  put(store.folder(30) / "manifest.json", "");
  CHECK(latest_good() == 20);
  REQUIRE(passed_over.size() == 2);
  CHECK(contains(passed_over[0], file.string()));
  CHECK(contains(passed_over[1], (store.folder(30) / "manifest.json").string()));
  CHECK(latest_good(/*verify_hashes=*/false) == 40);

  // After a run has resumed from an older checkpoint, the later ones belong to an abandoned history.
  put(run / "latest", "step-00000030\n");
  CHECK(latest_good(/*verify_hashes=*/false) == 20);
  for (const int64_t step : {10, 20})
    fs::remove(store.folder(step) / process_file_name(0, 2));
  CHECK(latest_good(/*verify_hashes=*/false) == 40);
  const std::string none = message_of<DataError>([&] { latest_good(); });
  for (const int64_t step : {10, 20, 30, 40})
    CHECK(contains(none, store.folder(step).string()));
}

TEST_CASE("a checkpoint is refused with any bit of its manifest flipped, or a file cut anywhere") {
  const std::string text = manifest_text(manifest_with_files());
  int64_t accepted = 0;
  for (size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(text[i] ^ (1 << bit));
      accepted += message_of<DataError>([&] { parse_manifest(changed, "where"); }).empty();
    }
  const TempFolder run;
  const CheckpointStore store(run.path());
  save(store, 20);
  const auto refusal = [&] { return message_of<DataError>([&] { store.read(20, /*verify_hashes=*/true); }); };
  for (const auto& file : fs::directory_iterator(store.folder(20))) {
    const std::string whole = get(file.path());
    for (size_t size = whole.size(); size-- > 0;) {
      fs::resize_file(file.path(), size);
      accepted += !contains(refusal(), file.path().string());
    }
    put(file.path(), whole);
  }
  CHECK(accepted == 0);
  CHECK(refusal().empty());
}
