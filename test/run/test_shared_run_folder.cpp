// How a run begins on all processes and is resumed, and what they report.

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <thread>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "io/file.h"
#include "process/identity.h"
#include "run/checkpoint_store.h"
#include "run/logging_interval.h"
#include "run/resumed_run.h"
#include "run/run_text.h"
#include "run/shared_run_folder.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

namespace {

constexpr int kWorld = 3;

/// Every rank shares folders[rank]; rank r > 0 is on host "host r". Returns the error of each rank.
std::vector<std::string> share(const std::vector<fs::path>& folders, milliseconds visible_after,
                               const std::function<std::unique_ptr<RunLock>()>& lock,
                               std::vector<SharedRunFolder>* results = nullptr,
                               milliseconds timeout = std::chrono::seconds(60)) {
  std::vector<std::string> messages(kWorld);
  const auto body = [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    const ProcessPlace mine = {.host = rank == 0 ? host_name() : "host " + std::to_string(rank),
                               .threads = comm.rank() + 1};
    try {
      SharedRunFolder shared = share_run_folder(comm, {folders[rank]}, mine, lock, visible_after);
      if (results) (*results)[rank] = std::move(shared);
      comm.barrier();
    } catch (const Error& error) {
      messages[rank] = std::to_string(static_cast<int>(error.code())) + ": " + error.what();
    }
  };
  run_thread_ranks(kWorld, body, Exchanges::kAtOnce, at::kCPU, timeout);
  return messages;
}

std::unique_ptr<RunLock> acquire(const fs::path& folder) {
  return RunLock::acquire(folder, [](const std::string&) {});
}

const std::vector<std::string> kNoErrors(kWorld);

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

TEST_CASE("all processes see the run folder that rank 0 locks, and know where all processes run") {
  const TempFolder folder;
  const fs::path path = folder.path();
  std::vector<SharedRunFolder> results(kWorld);
  CHECK(share(
            {path, path, path}, milliseconds(0), [&] { return acquire(path); }, &results) == kNoErrors);
  for (const SharedRunFolder& result : results) {
    CHECK((result.lock != nullptr) == (&result == &results[0]));
    REQUIRE(result.processes.size() == kWorld);
    CHECK(result.processes[0].host == host_name());
    CHECK(result.processes[2].host == "host 2");
    CHECK(result.processes[2].threads == 3);
  }
}

TEST_CASE("a host that sees the folder late is waited for, and rank 0 longer than a collective may take") {
  const TempFolder folder;
  const fs::path real = folder / "real", late = folder / "late";
  fs::create_directory(real);
  std::jthread links;
  const auto lock = [&] {
    std::this_thread::sleep_for(milliseconds(3500));
    links = std::jthread([&] {
      std::this_thread::sleep_for(milliseconds(300));
      fs::create_directory_symlink(real, late);
    });
    return acquire(real);
  };
  CHECK(share({real, real, late}, std::chrono::minutes(5), lock, nullptr, milliseconds(3000)) == kNoErrors);
}

TEST_CASE("a folder that one host does not see, or a refusal of rank 0, ends all processes") {
  const TempFolder folder;
  const fs::path shared = folder / "shared";
  for (const char* name : {"shared", "own"})
    fs::create_directory(folder / name);
  const auto other = acquire(folder / "own");  // the lock of another run is not rank 0's
  for (const fs::path& own : {folder / "own", folder / "none"})
    for (const std::string& message :
         share({shared, shared, own}, milliseconds(1), [&] { return acquire(shared); })) {
      for (const std::string& part : {std::string("2: "), std::string("host 2 (rank 2)"), shared.string()})
        CHECK(contains(message, part));
      CHECK_FALSE(contains(message, "host 1"));
    }
  const auto refuse = []() -> std::unique_ptr<RunLock> { throw DataError("the disk is full"); };
  CHECK(share({shared, shared, shared}, milliseconds(0), refuse) ==
        std::vector<std::string>(kWorld, "3: the disk is full"));
}

TEST_CASE("a run with a checkpoint continues, and does not start anew if the checkpoint is damaged") {
  const TempFolder folder;
  CHECK_FALSE(finds_checkpoint(folder.path(), Resume::kIfAny));
  CHECK_THROWS_AS(finds_checkpoint(folder.path(), Resume::kLatest), UsageError);
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

TEST_CASE("a checkpoint identifies its run") {
  const TempFolder folder;
  const CheckpointStore store(folder.path());
  const std::string spec = "name: r\nseed: 4\ndata: {name: cifar10, path: p}\n";
  RunHistory history = new_history();
  history.changes = {{.step = 5, .key = "optimizer.lr", .was = "1", .now = "2"}};
  save(folder.path(), 10, {{kSavedSpec, spec}, {kSavedHistory, history_text(history)}});
  CHECK(read_saved_run(store, 10).history == history);
  CHECK(read_saved_run(store, 10).spec.seed == 4);
  save(folder.path(), 20, {{kSavedSpec, spec}});
  CHECK_THROWS_AS(read_saved_run(store, 20), DataError);
}

TEST_CASE("reports and losses of all processes arrive bit by bit") {
  // As doubles: small ones are subnormal, 2^53 + 1 is none, and the last five are NaN, signaling or not, -0
  // and infinite.
  constexpr int64_t kOne = 1, kInf = 0x7FF0000000000000;
  constexpr int64_t kNumbers[] = {0,         1,    (kOne << 53) + 1, INT64_MAX, -1, kInf + 1,
                                  INT64_MIN, kInf, ~(kOne << 52)};
  const int world = GENERATE(1, 2);
  const auto body = [&](Communicator& comm) {
    for (const int64_t number : kNumbers) {
      const at::Tensor losses = at::tensor(std::vector<double>{1.5 + comm.rank(), std::nan("")}, at::kDouble);
      const GatheredReports all = gather(comm,
                                         {.save_is_due = number ^ comm.rank(),
                                          .counted = number,
                                          .times = {.forward_ms = 0.1 * comm.rank()}},
                                         losses.to(comm.device()));
      expect(all.processes.size() == static_cast<size_t>(world), "processes");
      expect(all.losses.size() == 2 * all.processes.size(), "losses");
      for (size_t rank = 0; rank < all.processes.size(); ++rank) {
        const ProcessReport& report = all.processes[rank];
        expect(report.save_is_due == (number ^ static_cast<int64_t>(rank)), "first number");
        expect(report.counted == number, "last number");
        expect(report.times.forward_ms == 0.1 * static_cast<double>(rank), "time");
        expect(all.losses[2 * rank] == 1.5 + static_cast<double>(rank), "loss");
        expect(std::isnan(all.losses[2 * rank + 1]), "second loss");
      }
    }
  };
  run_ranks(world, body);
}

TEST_CASE("slow data causes a warning from a fifth of a step on") {
  DataSpec data;
  data.loader_threads = 3;
  CHECK_FALSE(slow_data_warning(100, 19.9, data));
  CHECK_THAT(slow_data_warning(100, 20, data).value(), Contains("data.loader_threads (3)"));
}

TEST_CASE("an evaluation says whether a single subnetwork is better than the assembled model") {
  EvalRecord record{.step = 7, .loss = 1.25, .accuracy = 0.5, .samples = 40, .test_samples = 40};
  record.subnetwork_loss = {1.5, 1.125};
  record.subnetwork_accuracy = {0.375, 0.4375};
  record.subnetwork_standard_error = {0.01, 0.02};
  record.subnetwork_samples = 10;
  record.loss_on_subnetwork_samples = 1.375;
  record.accuracy_on_subnetwork_samples = 0.4375;
  const auto is_better = [&] { return describe(record).find("is better than") != std::string::npos; };
  CHECK_FALSE(is_better());                         // as accurate as the assembled model on the same samples
  record.accuracy_on_subnetwork_samples = 0.40625;  // images are compared by accuracy
  CHECK(is_better());
  record.subnetwork_standard_error[1] = 0.03125;
  CHECK_FALSE(is_better());
  record.tokens = 400;  // tokens by loss
  CHECK(is_better());
  record.subnetwork_standard_error[1] = 0.26;
  CHECK_FALSE(is_better());
  record.subnetwork_standard_error[1] = 0;
  record.subnetwork_loss[1] = 1.375;
  CHECK_FALSE(is_better());
}
