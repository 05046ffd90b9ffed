#include <sstream>
#include <tuple>

#include "catch.h"
#include "comm/ranks.h"
#include "spec/error.h"
#include "temp_folder.h"

namespace sdp {
namespace {

using Strings = std::vector<std::string>;

std::string error_of(const Environment& environment) {
  return message_of<UsageError>([&] { ranks_from_environment(environment); });
}

Ranks ranks_of(const Environment& environment) {
  return ranks_from_environment(environment).value();
}

/// "NAME=VALUE NAME=VALUE".
Environment variables(const std::string& text) {
  Environment environment;
  std::istringstream words(text);
  for (std::string name, value; std::getline(words, name, '=') && (std::getline(words, value, ' '), true);)
    environment[name] = value;
  return environment;
}

/// An empty value removes the variable.
Environment with(Environment environment, const std::string& changes) {
  for (const auto& [name, value] : variables(changes)) {
    environment[name] = value;
    if (value.empty()) environment.erase(name);
  }
  return environment;
}

const Environment kTorchrun =
    variables("RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=gpu01 MASTER_PORT=29400");
const Environment kOpenMpi = variables(
    "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 "
    "OMPI_COMM_WORLD_LOCAL_SIZE=4");
const Environment kMvapich2 = variables(
    "MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=1 MV2_COMM_WORLD_LOCAL_SIZE=2 "
    "MASTER_ADDR=gpu01");
const Environment kPmi = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
/// Task 6 of 7 on three nodes: 3, 3 and 1 tasks.
const Environment kSlurm = variables(
    "SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_NTASKS=7 SLURM_LOCALID=2 SLURM_NODEID=1 "
    "SLURM_STEP_TASKS_PER_NODE=3(x2),1 SLURM_STEP_NODELIST=gpu[07-08,11]");

}  // namespace

TEST_CASE("the variables of every launcher") {
  struct Case {
    Environment environment;
    std::string source;
    int rank, world, local_rank, local_world;
    bool single_host, shares_folder;
    std::string master_address;
  };
  const Environment by_hand = variables("RANK=1 WORLD_SIZE=3 MASTER_ADDR=127.0.0.1");
  const Environment one_node =
      with(kSlurm, "SLURM_STEP_NODELIST=gpu07 SLURM_STEP_TASKS_PER_NODE=7 SLURM_NODEID=0");
  const std::string torchrun = "torchrun (RANK, WORLD_SIZE)", slurm = "SLURM (SLURM_PROCID, SLURM_NTASKS)";
  const std::string mpi = "Open MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)";
  const std::vector<Case> cases = {
      {kTorchrun, torchrun, 5, 8, 1, 4, false, false, "gpu01"},
      {with(kTorchrun, "SDP_SHARED_FOLDER=1"), torchrun, 5, 8, 1, 4, false, true, "gpu01"},
      {with(kTorchrun, "LOCAL_WORLD_SIZE=8"), torchrun, 5, 8, 1, 8, true, true, "gpu01"},
      {with(kTorchrun, "LOCAL_WORLD_SIZE=8 SDP_SHARED_FOLDER=0"), torchrun, 5, 8, 1, 8, true, false, "gpu01"},
      // Nobody has said that these are on one host; they may have been started in different folders.
      {by_hand, torchrun, 1, 3, 1, 3, true, false, "127.0.0.1"},
      {with(kTorchrun, "LOCAL_WORLD_SIZE="), torchrun, 5, 8, 1, 8, false, false, "gpu01"},
      {variables("RANK=0 WORLD_SIZE=1"), torchrun, 0, 1, 0, 1, true, false, "127.0.0.1"},
      {kOpenMpi, mpi, 2, 4, 2, 4, true, true, "127.0.0.1"},
      {kMvapich2, "MVAPICH2 (MV2_COMM_WORLD_RANK, MV2_COMM_WORLD_SIZE)", 3, 4, 1, 2, false, false, "gpu01"},
      {kPmi, "PMI (PMI_RANK, PMI_SIZE)", 1, 2, 1, 2, true, true, "127.0.0.1"},
      {kSlurm, slurm, 5, 7, 2, 3, false, false, "gpu07"},
      {with(kSlurm, "MASTER_ADDR=login SDP_SHARED_FOLDER=1"), slurm, 5, 7, 2, 3, false, true, "login"},
      {one_node, slurm, 5, 7, 2, 7, true, true, "127.0.0.1"},
      // A job step of 4 tasks in a job of 7.
      {with(one_node, "SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=3"), "SLURM (SLURM_PROCID, SLURM_STEP_NUM_TASKS)",
       3, 4, 2, 4, true, true, "127.0.0.1"},
      {with(kSlurm, "SLURM_STEP_TASKS_PER_NODE= SLURM_NTASKS_PER_NODE=3 MASTER_ADDR=fe80::1%eth0"), slurm, 5,
       7, 2, 3, false, false, "fe80::1%eth0"},
      // Under srun --mpi=pmi2, PMI's pair lacks the local rank, which SLURM knows.
      {with(kSlurm, "PMI_RANK=5 PMI_SIZE=7"), slurm, 5, 7, 2, 3, false, false, "gpu07"},
      // Variables of another launcher that were exported.
      {with(kSlurm, "WORLD_SIZE=7"), "WORLD_SIZE of torchrun", 5, 7, 2, 3, false, false, "gpu07"},
      {with(kOpenMpi, "RANK=0 LOCAL_RANK=0"), "RANK, LOCAL_RANK of torchrun", 2, 4, 2, 4, true, true,
       "127.0.0.1"}};
  for (const Case& one : cases) {
    INFO(one.source);
    const Ranks ranks = ranks_of(one.environment);
    CHECK(std::tie(ranks.rank, ranks.world, ranks.local_rank, ranks.local_world) ==
          std::tie(one.rank, one.world, one.local_rank, one.local_world));
    CHECK(contains(ranks.source, one.source));
    CHECK(ranks.single_host == one.single_host);
    CHECK(ranks.shares_folder == one.shares_folder);
    CHECK(ranks.master_address == one.master_address);
    CHECK_FALSE(ranks.external_store);
  }
  const Ranks agent =
      ranks_of(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT=2"));
  CHECK(agent.external_store);
  CHECK(agent.store_prefix == "/worker/attempt_2");
  CHECK_FALSE(ranks_of(with(kTorchrun, "TORCHELASTIC_USE_AGENT_STORE=False")).external_store);
  // What nobody names and what cannot be guessed is asked for.
  CHECK(contains(error_of(with(by_hand, "MASTER_ADDR=gpu01")), "LOCAL_RANK"));
  CHECK(contains(error_of(with(kMvapich2, "MASTER_ADDR=")), "MASTER_ADDR"));
  CHECK(contains(error_of(variables("PMI_RANK=1 PMI_SIZE=2")), "MASTER_ADDR"));
  CHECK(contains(error_of(with(kSlurm, "SLURM_STEP_TASKS_PER_NODE=")), "--ntasks-per-node"));
}

TEST_CASE("no launcher's variables, and SLURM's shells: no ranks") {
  const std::vector<Environment> none = {
      {},
      variables("PATH=/bin MASTER_ADDR=gpu01 RANK="),
      // Batch script: PROCID 0 but no step. Interactive allocation: neither, or a reserved step.
      with(kSlurm, "SLURM_STEP_ID= SLURM_PROCID=0"),
      with(kSlurm, "SLURM_STEP_ID=batch"),
      with(kSlurm, "SLURM_STEP_ID=4294967290"),
      with(kSlurm, "SLURM_PROCID="),
      // srun --pty bash: a job step of one task, which should start its own processes, whatever is exported.
      with(kSlurm, "SLURM_NTASKS=1 SLURM_PROCID=0"),
      with(kSlurm, "SLURM_NTASKS=1 SLURM_PROCID=0 WORLD_SIZE=7")};
  for (const Environment& environment : none)
    CHECK_FALSE(ranks_from_environment(environment));
}

TEST_CASE("an incomplete family names the variables that are set and those that are missing") {
  const Environment own = with(kTorchrun, std::string(kRendezvousFileVariable) + "=/tmp/rendezvous");
  const std::vector<std::tuple<std::string, Environment, Strings>> families = {
      {"torchrun", kTorchrun, {"RANK", "WORLD_SIZE"}},
      {"Open MPI", kOpenMpi, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}},
      {"MVAPICH2", kMvapich2, {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"}},
      {"PMI", kPmi, {"PMI_RANK", "PMI_SIZE"}},
      {"SLURM", kSlurm, {"SLURM_NTASKS", "SLURM_LOCALID"}},
      {"sdp-train launcher", own, {"LOCAL_WORLD_SIZE"}}};
  for (const auto& [name, family, needed] : families)
    for (const std::string& missing : needed) {
      const Environment half = with(family, missing + "=");
      const std::string message = error_of(half);
      CAPTURE(message);
      CHECK(contains(message, name + " are incomplete"));
      CHECK(contains(message, missing + " is not"));
      for (const auto& [variable, value] : half)
        if (contains(variable, "RANK")) CHECK(contains(message, variable));
    }
  CHECK(contains(error_of(with(kOpenMpi, "WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=")), "torchrun"));
}

TEST_CASE("the first complete family takes precedence") {
  Environment all;
  using Family = std::pair<std::string, Environment>;
  const std::vector<Family> families = {Family("torchrun (", kTorchrun), Family("MVAPICH2 (", kMvapich2),
                                        Family("Open MPI (", kOpenMpi), Family("PMI (", kPmi),
                                        Family("SLURM (", kSlurm)};
  for (const auto& [name, family] : families)
    all.insert(family.begin(), family.end());
  const Ranks own =
      ranks_of(with(all, std::string("WORLD_SIZE=4 RANK=1 ") + kRendezvousFileVariable + "=/tmp/rendezvous"));
  CHECK(own.source == "sdp-train launcher");
  CHECK(own.rendezvous_file == "/tmp/rendezvous");
  CHECK(own.single_host);
  for (const auto& [name, family] : families) {
    CHECK(ranks_of(all).source.starts_with(name));
    for (const auto& [variable, value] : family)
      if (variable != "MASTER_ADDR" && variable != "MASTER_PORT") all.erase(variable);
  }
}

TEST_CASE("invalid values are refused, quoted and with the variable") {
  const std::vector<std::tuple<Environment, std::string, Strings>> families = {
      {kTorchrun, "RANK", {"five", "-1", "8", "5.0", " 5", "99999999999"}},
      {kTorchrun, "WORLD_SIZE", {"0", "-2", "8x"}},
      {kTorchrun, "LOCAL_RANK", {"4"}},
      {kTorchrun, "LOCAL_WORLD_SIZE", {"9"}},
      {kTorchrun, "MASTER_PORT", {"0", "65536"}},
      {kTorchrun, "SDP_SHARED_FOLDER", {"yes", "2", "1 ", "-1"}},
      {kSlurm, "SLURM_LOCALID", {"3"}},
      {kSlurm, "SLURM_STEP_NODELIST", {"gpu[07-"}}};
  for (const auto& [family, name, values] : families)
    for (const std::string& value : values) {
      Environment environment = family;
      environment[name] = value;
      CHECK(contains(error_of(environment), name + " is \"" + value + "\""));
    }
  for (const auto& [address, quoted] : {std::pair("node-a\n", "\"node-a\\x0a\""),
                                        {"127.0.0.1\r\n", "\"127.0.0.1\\x0d\\x0a\""},
                                        {" node-a", "\"\\x20node-a\""},
                                        {"\x7f", "\"\\x7f\""}})
    for (Environment family : {kTorchrun, kOpenMpi, kSlurm}) {
      family["MASTER_ADDR"] = address;
      CHECK_THAT(error_of(family), Catch::Contains(quoted) && Catch::Contains("MASTER_ADDR"));
    }
}

TEST_CASE("ports differ between jobs and are equal within a job") {
  const auto port = [](const Environment& environment) { return ranks_of(environment).master_port; };
  CHECK(port(kOpenMpi) == 29500);
  CHECK(port(with(kOpenMpi, "MASTER_PORT=1234")) == 1234);
  const Environment job = with(kOpenMpi, "PMIX_NAMESPACE=prterun-host-77@1");
  CHECK((port(job) >= 20000 && port(job) <= 29999));
  CHECK(port(job) == port(with(job, "OMPI_COMM_WORLD_RANK=0")));
  CHECK(port(job) != port(with(job, "PMIX_NAMESPACE=prterun-host-78@1")));
  CHECK(port(kSlurm) != port(with(kSlurm, "SLURM_STEP_ID=1")));
  CHECK(port(kSlurm) == port(with(kSlurm, "SLURM_PROCID=4 SLURM_LOCALID=1")));
}

TEST_CASE("node lists and tasks per node expand") {
  const std::vector<std::pair<std::string, Strings>> nodes = {
      {"node7", {"node7"}},
      {"node[03-05,9]", {"node03", "node04", "node05", "node9"}},
      {"a,b[1-2]-ib,c", {"a", "b1-ib", "b2-ib", "c"}},
      {"r[0-1]n[08-10]", {"r0n08", "r0n09", "r0n10", "r1n08", "r1n09", "r1n10"}}};
  for (const auto& [list, expanded] : nodes)
    CHECK(expand_node_list("NODES", list) == expanded);
  for (const char* list :
       {"node[1-", "node[2-1]", "node[a-b]", "node]1[", "n[[1]]", "a,,b", "", "n[]", "n[0-999999]"})
    CHECK_THROWS_AS(expand_node_list("NODES", list), UsageError);
  CHECK(expand_tasks_per_node("TASKS", "4(x2),3") == std::vector<int>{4, 4, 3});
  CHECK(expand_tasks_per_node("TASKS", "1,2(x1),8(x3)") == std::vector<int>{1, 2, 8, 8, 8});
  for (const char* list : {"", "4(x)", "4(x2", "x2", "4,", "0", "4(x0)", "4(x9999999)"})
    CHECK_THROWS_AS(expand_tasks_per_node("TASKS", list), UsageError);
}

}  // namespace sdp
