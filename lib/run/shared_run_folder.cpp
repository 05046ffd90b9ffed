#include "run/shared_run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "process/identity.h"
#include "spec/error.h"
#include "spec/json_fields.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kPoll{200};

/// The outcome of rank 0's locking, for the other ranks: the lock's id, or the error to throw on all ranks.
std::string locked_by_rank_0(SharedRunFolder& run, const std::function<std::unique_ptr<RunLock>()>& lock) {
  nlohmann::json outcome;
  try {
    run.lock = lock();
    outcome["id"] = run.lock->owner().id;
  } catch (const Error& error) {
    outcome = {{"code", static_cast<int>(error.code())}, {"message", error.what()}};
  }
  outcome["host"] = host_name();
  outcome["folder"] = fs::absolute(run.folder.dir).string();
  return json_text(outcome);
}

bool sees_lock(const fs::path& folder, const std::string& id, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    try {
      const std::optional<RunOwner> owner = read_lock(folder).owner;
      if (owner && owner->id == id) return true;
    } catch (const DataError&) {
      // an unreadable lock counts as not visible
    }
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
    std::error_code ignored;  // opening a folder makes an NFS client read its entries again
    (void)fs::directory_iterator(folder.parent_path(), ignored);
  }
}

/// "host a (rank 1), host b (ranks 2, 3)"
std::string text_of(const std::map<std::string, std::vector<int>>& ranks_by_host) {
  std::string text;
  for (const auto& [host, ranks] : ranks_by_host)
    text += fmt::format("{}host {} (rank{} {})", text.empty() ? "" : ", ", host, ranks.size() == 1 ? "" : "s",
                        fmt::join(ranks, ", "));
  return text;
}

}  // namespace

SharedRunFolder share_run_folder(Communicator& comm, const RunFolder& folder, const ProcessPlace& mine,
                                 const std::function<std::unique_ptr<RunLock>()>& lock,
                                 std::chrono::milliseconds visible_after) {
  const PhaseScope phase(comm, "locking the run folder");
  SharedRunFolder run{.folder = folder, .lock = nullptr, .processes = {}};
  const std::string outcome = comm.rank() == 0 ? locked_by_rank_0(run, lock) : "";
  comm.patient_barrier();
  const auto first = nlohmann::json::parse(comm.all_gather_strings(outcome).front());
  if (first.contains("code"))
    throw Error(static_cast<ExitCode>(first.at("code").get<int>()), first.at("message").get<std::string>());

  const bool same_host = mine.host == first.at("host").get<std::string>();
  const bool sees = sees_lock(folder.dir, first.at("id").get<std::string>(),
                              same_host ? std::chrono::milliseconds{0} : visible_after);
  const nlohmann::json place = {mine.host, mine.threads, sees};
  std::map<std::string, std::vector<int>> blind;
  for (const std::string& text : comm.all_gather_strings(json_text(place))) {
    const auto other = nlohmann::json::parse(text);
    run.processes.push_back({.host = other[0], .threads = other[1]});
    if (!other[2].get<bool>())
      blind[run.processes.back().host].push_back(static_cast<int>(run.processes.size()) - 1);
  }
  if (!blind.empty())
    throw UsageError(fmt::format(
        "output.dir: rank 0's run folder {} on host {} is not visible to {}. All processes write their parts "
        "of a checkpoint into it: set output.dir to a folder that all of them share, or start them in the "
        "same working directory.",
        first.at("folder").get<std::string>(), first.at("host").get<std::string>(), text_of(blind)));
  return run;
}

}  // namespace sdp
