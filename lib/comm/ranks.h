#pragma once

// Reads this process's rank and the number of processes from the environment variables of the program that
// started it. Does not depend on LibTorch.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spec/field.h"

namespace sdp {

inline constexpr const char* kLoopback = "127.0.0.1";

using Environment = std::map<std::string, std::string>;

/// The environment variables of this process.
Environment current_environment();

/// Set by sdp-train's built-in launcher: the file through which its processes meet.
inline constexpr const char* kRendezvousFileVariable = "SDP_RENDEZVOUS_FILE";

/// This process's rank, and how the processes meet.
struct Ranks {
  int rank = 0;                 ///< among all processes, 0..world-1
  int world = 1;                ///< W, number of processes
  int local_rank = 0;           ///< among this host's processes, 0..local_world-1
  int local_world = 1;          ///< number of processes on this host
  bool equal_hosts = false;     ///< every host must have the same number of processes; connect() checks it
  std::string source;           ///< where the ranks come from, e.g. "torchrun (RANK, WORLD_SIZE)"
  bool single_host = true;      ///< all processes are on one host and can use loopback
  bool shares_folder = false;   ///< the launcher's or user's word that all processes see the same folders
  std::string master_address;   ///< host of rank 0; empty with a rendezvous file
  int master_port = 0;          ///< 0 with a rendezvous file
  bool external_store = false;  ///< the launcher already serves a c10d TCPStore there: rank 0 must not
  std::string store_prefix;     ///< of our keys in that store; a restarted job must not read the old keys
  std::string rendezvous_file;  ///< meet through this file instead of TCP
};

/// Reads the variables of, in this order, sdp-train's built-in launcher, torchrun, MVAPICH2, Open MPI, PMI
/// (MPICH, Intel MPI, Cray) and SLURM's srun. Returns nullopt if none of them started this process. A
/// launcher whose variables are complete takes precedence over one that has only some of its variables set
/// (for example, an exported WORLD_SIZE); `source` then names the ignored variables.
///
/// SLURM's variables count only inside a step of more than one task: the shell of a batch script, an
/// interactive allocation or a step of one task (`srun --pty`) did not start W processes, and waiting for
/// them would hang.
///
/// Master address: MASTER_ADDR if set; else 127.0.0.1 if all processes are on one host; else the first host
/// of SLURM's node list. Master port: MASTER_PORT if set; else a port in 20000..29999 derived from the job's
/// id; else 29500. torchrun's LOCAL_RANK and LOCAL_WORLD_SIZE may both be missing if MASTER_ADDR is a
/// loopback address (all processes on one host). Otherwise only LOCAL_WORLD_SIZE may be missing; it then
/// defaults to WORLD_SIZE, which only results in fewer threads.
///
/// Processes see the same folders if their launcher says that they are on one host. SDP_SHARED_FOLDER (0 or
/// 1) takes precedence.
///
/// Throws UsageError if a launcher's variables are incomplete and those of no other launcher are complete,
/// naming the variables that are set and those that are missing; if a value is not a number or out of range;
/// if MASTER_ADDR has blanks or control characters; or if ranks on several hosts have no MASTER_ADDR.
std::optional<Ranks> ranks_from_environment(const Environment& environment);

/// Backend of the collectives.
enum class BackendKind { kAuto, kNccl, kGloo };
SDP_ENUM_NAMES(BackendKind, {BackendKind::kAuto, "auto"}, {BackendKind::kNccl, "nccl"},
               {BackendKind::kGloo, "gloo"})

// SLURM's two compressed lists.

/// Host names: "gpu[03-05,9],login" -> gpu03, gpu04, gpu05, gpu9, login. A name with several brackets stands
/// for all combinations; the first bracket varies slowest. Throws UsageError naming `variable` if the list is
/// malformed or longer than 65536 hosts.
std::vector<std::string> expand_node_list(const std::string& variable, const std::string& list);

/// Tasks per node: "4(x2),3" -> 4, 4, 3. Throws UsageError naming `variable` if the list is malformed.
std::vector<int> expand_tasks_per_node(const std::string& variable, const std::string& list);

}  // namespace sdp
