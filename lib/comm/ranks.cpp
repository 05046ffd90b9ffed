#include "comm/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "spec/error.h"
#include "spec/hash.h"
#include "spec/text.h"

namespace sdp {
namespace {

constexpr int kLargestWorld = 65536;
constexpr const char* kSharedFolder = "SDP_SHARED_FOLDER";
constexpr int kDefaultPort = 29500;
constexpr int kFirstJobPort = 20000;
constexpr int kJobPorts = 10000;
/// SLURM numbers users' steps from 0; batch shells, interactive shells and similar steps have larger numbers.
constexpr int64_t kLastUserStep = 0xfffffff0;

/// Typed look-ups; an empty variable counts as unset.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  bool has(const std::string& name) const { return !text(name).empty(); }

  std::string text(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }

  int number(const std::string& name, int min, int max) const {
    const std::string value = text(name);
    const auto parsed = number_in<int>(value);
    if (!parsed || *parsed < min || *parsed > max)
      throw UsageError(fmt::format(
          "Environment variable {} is \"{}\"; expected a whole number from {} to {}. The program that starts "
          "the processes sets this variable. Correct it, or unset it and the related variables to let "
          "sdp-train start the processes itself.",
          name, value, min, max));
    return *parsed;
  }

  /// MASTER_ADDR, or "".
  std::string address() const {
    const std::string value = text("MASTER_ADDR");
    std::string quoted;
    for (const unsigned char byte : value)
      quoted += byte > ' ' && byte != 0x7f ? std::string(1, static_cast<char>(byte))
                                           : fmt::format("\\x{:02x}", byte);
    if (quoted == value) return value;
    throw UsageError(
        "Environment variable MASTER_ADDR is \"" + quoted +
        "\"; expected the name or address of rank 0's host, without blanks, line breaks and other "
        "control characters. Set it to that on every process.");
  }

  /// The first of the names that is set, or "".
  std::string first_set(const std::vector<std::string>& names) const {
    for (const std::string& name : names)
      if (has(name)) return name;
    return "";
  }

 private:
  const Environment& environment_;
};

/// The variables of one launcher. The first variable in local_rank that is set counts; likewise for
/// local_world.
struct Family {
  std::string name;
  std::string rank;
  std::string world;
  std::vector<std::string> local_rank;
  std::vector<std::string> local_world;
  bool local_required = true;
  std::vector<std::string> job;  ///< variables that distinguish this job from others
};

/// Some variables of a family are set and others are missing.
class Incomplete : public UsageError {
 public:
  Incomplete(const std::string& family, const std::string& found, const std::string& message)
      : UsageError(message), note_(found + " of " + family) {}
  /// The variables that are set, and the launcher they belong to.
  const std::string& note() const { return note_; }

 private:
  std::string note_;
};

void check_complete(const Variables& variables, const Family& family) {
  std::vector<std::string> found;
  std::string missing;
  const auto look_up = [&](const std::vector<std::string>& names, bool required) {
    const std::string name = variables.first_set(names);
    if (!name.empty()) found.push_back(name);
    if (name.empty() && required && missing.empty()) missing = names.front();
  };
  look_up({family.rank}, true);
  look_up({family.world}, true);
  look_up(family.local_rank, family.local_required);
  look_up(family.local_world, family.local_required);
  if (missing.empty()) return;
  const std::string all = fmt::format("{}", fmt::join(found, ", "));
  throw Incomplete(family.name, all,
                   fmt::format("The variables of {} are incomplete: {} {} set, but {} is not. Set {} too, or "
                               "unset {} to let sdp-train start the processes itself.",
                               family.name, all, found.size() == 1 ? "is" : "are", missing, missing,
                               fmt::join(found, " and ")));
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.rfind("127.", 0) == 0;
}

/// rank, world and the local pair.
Ranks read_numbers(const Variables& variables, const Family& family) {
  Ranks ranks;
  ranks.source = family.name + " (" + family.rank + ", " + family.world + ")";
  ranks.world = variables.number(family.world, 1, kLargestWorld);
  ranks.rank = variables.number(family.rank, 0, ranks.world - 1);
  const std::string local_rank = variables.first_set(family.local_rank);
  const std::string local_world = variables.first_set(family.local_world);
  const bool one_host = ranks.world == 1 || is_loopback(variables.address());
  ranks.local_world = local_world.empty() ? ranks.world : variables.number(local_world, 1, ranks.world);
  if (!local_rank.empty())
    ranks.local_rank = variables.number(local_rank, 0, ranks.local_world - 1);
  else if (one_host)
    ranks.local_rank = ranks.rank;
  else if (variables.has("MASTER_ADDR"))
    throw UsageError(family.name + " set " + family.rank + " and " + family.world + ", but not " +
                     family.local_rank.front() + ", which distinguishes the processes of one host. Set " +
                     family.local_rank.front() + " (to 0 if a host runs only one process).");
  const bool local_known = !local_rank.empty() && !local_world.empty();
  ranks.single_host = local_known ? ranks.local_world == ranks.world : one_host;
  ranks.shares_folder = local_known && ranks.single_host;
  return ranks;
}

int master_port(const Variables& variables, const std::vector<std::string>& job) {
  if (variables.has("MASTER_PORT")) return variables.number("MASTER_PORT", 1, 65535);
  std::string id;
  for (const std::string& name : job)
    if (variables.has(name)) id += variables.text(name) + "/";
  if (id.empty()) return kDefaultPort;
  return kFirstJobPort + static_cast<int>(std::stoull(xxh3_128(id).substr(0, 16), nullptr, 16) % kJobPorts);
}

/// `first_host`: host of rank 0 if the launcher reports it, else "".
void set_master(Ranks& ranks, const Variables& variables, const std::vector<std::string>& job,
                const std::string& first_host) {
  ranks.master_port = master_port(variables, job);
  if (variables.has("MASTER_ADDR"))
    ranks.master_address = variables.address();
  else if (ranks.single_host)
    ranks.master_address = kLoopback;
  else if (!first_host.empty())
    ranks.master_address = first_host;
  else
    throw UsageError("The processes started by " + ranks.source +
                     " do not know where to meet: MASTER_ADDR is not set. Set MASTER_ADDR to the host of "
                     "rank 0 on every process (127.0.0.1 if all run on one host).");
}

std::optional<Ranks> from_family(const Variables& variables, const Family& family) {
  if (!variables.has(family.rank) && !variables.has(family.world)) return std::nullopt;
  check_complete(variables, family);
  Ranks ranks = read_numbers(variables, family);
  set_master(ranks, variables, family.job, "");
  return ranks;
}

/// The names that torchrun and the built-in launcher share.
Family torchrun_names(const std::string& name, bool local_required) {
  return {.name = name,
          .rank = "RANK",
          .world = "WORLD_SIZE",
          .local_rank = {"LOCAL_RANK"},
          .local_world = {"LOCAL_WORLD_SIZE"},
          .local_required = local_required,
          .job = {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"}};
}

std::optional<Ranks> from_own_launcher(const Variables& variables) {
  if (!variables.has(kRendezvousFileVariable)) return std::nullopt;
  const Family family = torchrun_names("sdp-train launcher", true);
  check_complete(variables, family);
  Ranks ranks = read_numbers(variables, family);
  ranks.source = family.name;
  ranks.single_host = true;
  ranks.rendezvous_file = variables.text(kRendezvousFileVariable);
  return ranks;
}

std::optional<Ranks> from_torchrun(const Variables& variables) {
  std::optional<Ranks> ranks = from_family(variables, torchrun_names("torchrun", false));
  if (ranks && variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    ranks->external_store = true;
    ranks->store_prefix = "/worker/attempt_" + variables.text("TORCHELASTIC_RESTART_COUNT");
  }
  return ranks;
}

std::optional<Ranks> from_mvapich2(const Variables& variables) {
  return from_family(variables, {.name = "MVAPICH2",
                                 .rank = "MV2_COMM_WORLD_RANK",
                                 .world = "MV2_COMM_WORLD_SIZE",
                                 .local_rank = {"MV2_COMM_WORLD_LOCAL_RANK"},
                                 .local_world = {"MV2_COMM_WORLD_LOCAL_SIZE"},
                                 .job = {"PMI_JOBID", "SLURM_JOB_ID"}});
}

std::optional<Ranks> from_open_mpi(const Variables& variables) {
  return from_family(variables, {.name = "Open MPI",
                                 .rank = "OMPI_COMM_WORLD_RANK",
                                 .world = "OMPI_COMM_WORLD_SIZE",
                                 .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
                                 .local_world = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
                                 .job = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "SLURM_JOB_ID"}});
}

std::optional<Ranks> from_pmi(const Variables& variables) {
  const Family family = {.name = "PMI",
                         .rank = "PMI_RANK",
                         .world = "PMI_SIZE",
                         .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
                         .local_world = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
                         .local_required = false,
                         .job = {"PMI_JOBID", "SLURM_JOB_ID"}};
  // srun --mpi=pmi2 sets PMI_RANK and PMI_SIZE without the local pair. SLURM's variables are then complete.
  if (variables.has("SLURM_PROCID") && variables.first_set(family.local_rank).empty()) return std::nullopt;
  return from_family(variables, family);
}

/// Whether srun started this process, and not the shell of a batch script or an interactive allocation. In
/// such a shell SLURM_STEP_ID is unset, a word or one of SLURM's reserved numbers.
bool in_user_step(const Variables& variables) {
  const auto step =
      number_in<int64_t>(variables.text(variables.first_set({"SLURM_STEP_ID", "SLURM_STEPID"})));
  return step && *step >= 0 && *step <= kLastUserStep;
}

/// Tasks on this node. `hosts`: the hosts of the step, or of the job if SLURM reports only those.
int slurm_local_world(const Variables& variables, int world, const std::vector<std::string>& hosts) {
  if (hosts.size() == 1 || world == 1) return world;
  const std::string list = variables.first_set({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!list.empty() && variables.has("SLURM_NODEID")) {
    const std::vector<int> tasks = expand_tasks_per_node(list, variables.text(list));
    const int node = variables.number("SLURM_NODEID", 0, static_cast<int>(tasks.size()) - 1);
    return std::min(world, tasks[static_cast<size_t>(node)]);
  }
  if (variables.has("SLURM_NTASKS_PER_NODE"))
    return std::min(world, variables.number("SLURM_NTASKS_PER_NODE", 1, kLargestWorld));
  throw UsageError(
      "SLURM does not say how many tasks run on this node: neither SLURM_STEP_TASKS_PER_NODE with "
      "SLURM_NODEID nor SLURM_NTASKS_PER_NODE is set. Start with srun --ntasks-per-node=N.");
}

void check_slurm_complete(const Variables& variables, const std::string& world) {
  for (const std::string& name : {world, std::string("SLURM_LOCALID")})
    if (!variables.has(name))
      throw Incomplete("SLURM", "SLURM_PROCID",
                       "The variables of SLURM are incomplete: SLURM_PROCID and SLURM_STEP_ID are set, but " +
                           name +
                           " is not. Start with srun, which sets all of them, or unset SLURM_PROCID to let "
                           "sdp-train start the processes itself.");
}

std::optional<Ranks> from_slurm(const Variables& variables) {
  if (!variables.has("SLURM_PROCID") || !in_user_step(variables)) return std::nullopt;
  const std::string world = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  check_slurm_complete(variables, world);
  Ranks ranks;
  ranks.source = "SLURM (SLURM_PROCID, " + world + ")";
  ranks.world = variables.number(world, 1, kLargestWorld);
  if (ranks.world == 1) return Ranks{};  // a single task: sdp-train starts the processes itself
  ranks.rank = variables.number("SLURM_PROCID", 0, ranks.world - 1);

  const std::string list =
      variables.first_set({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  std::vector<std::string> hosts;
  if (!list.empty()) hosts = expand_node_list(list, variables.text(list));
  ranks.local_world = slurm_local_world(variables, ranks.world, hosts);
  ranks.local_rank = variables.number("SLURM_LOCALID", 0, ranks.local_world - 1);
  ranks.single_host = hosts.empty() ? ranks.local_world == ranks.world : hosts.size() == 1;
  ranks.shares_folder = ranks.single_host;
  set_master(ranks, variables, {"SLURM_JOB_ID", "SLURM_STEP_ID"}, hosts.empty() ? "" : hosts.front());
  return ranks;
}

}  // namespace

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::optional<Ranks> ranks_from_environment(const Environment& environment) {
  const Variables variables(environment);
  if (std::optional<Ranks> ranks = from_own_launcher(variables)) return ranks;
  std::optional<Incomplete> incomplete;
  for (const auto family : {from_torchrun, from_mvapich2, from_open_mpi, from_pmi, from_slurm})
    try {
      std::optional<Ranks> ranks = family(variables);
      if (!ranks) continue;
      if (ranks->source.empty()) return std::nullopt;
      if (variables.has(kSharedFolder)) ranks->shares_folder = variables.number(kSharedFolder, 0, 1) == 1;
      if (incomplete) ranks->source += "; ignored " + incomplete->note() + " (incomplete)";
      return ranks;
    } catch (const Incomplete& error) {
      if (!incomplete) incomplete = error;
    }
  if (incomplete) throw UsageError(*incomplete);
  return std::nullopt;
}

}  // namespace sdp
