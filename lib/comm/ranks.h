#pragma once

// Which process of how many this is, as the program that started it says through environment variables.
// Free of LibTorch.

#include <map>
#include <optional>
#include <string>

namespace sdp {

using Environment = std::map<std::string, std::string>;

/// The variables of this process.
Environment current_environment();

/// Set by sdp-train's own launcher: the file over which its processes meet.
inline constexpr const char* kRendezvousFileVariable = "SDP_RENDEZVOUS_FILE";

/// One process's place, and how the processes meet.
struct Ranks {
  int rank = 0;                 ///< of all processes, 0..world-1
  int world = 1;                ///< W, all processes
  int local_rank = 0;           ///< of this host's processes, 0..local_world-1
  int local_world = 1;          ///< processes on this host
  bool equal_hosts = false;     ///< the ranks count on as many processes on every host: connect() makes sure
  std::string source;           ///< who said so, e.g. "torchrun (RANK, WORLD_SIZE)"
  bool single_host = true;      ///< all processes are on one host, so that loopback reaches them
  std::string master_address;   ///< host of rank 0; empty with a rendezvous file
  int master_port = 0;          ///< 0 with a rendezvous file
  bool external_store = false;  ///< the launcher already serves a c10d TCPStore there: rank 0 must not
  std::string store_prefix;     ///< of our keys in that store; a restarted job must not read the old ones
  std::string rendezvous_file;  ///< meet over this file instead of over TCP
};

/// Reads the variables of, in this order, sdp-train's own launcher, torchrun, MVAPICH2, Open MPI, PMI (MPICH,
/// Intel MPI, Cray) and SLURM's srun. Nothing when none of them started this process. A launcher whose
/// variables are complete goes before one of which only some are set (an exported WORLD_SIZE); `source` then
/// names those.
///
/// SLURM counts only inside a step of more than one task: the shell of a batch script, an interactive
/// allocation or a step of one task (`srun --pty`) did not start W processes, and waiting for them would
/// hang.
///
/// Master: MASTER_ADDR and MASTER_PORT where set; else 127.0.0.1 when all processes are on one host; else the
/// first host of SLURM's node list. Port: else 20000..29999 derived from the job's id; else 29500.
/// torchrun's LOCAL_RANK and LOCAL_WORLD_SIZE may be left out where MASTER_ADDR is a loopback address (all on
/// one host); LOCAL_WORLD_SIZE alone may be left out elsewhere, and then counts as WORLD_SIZE, which only
/// costs threads.
///
/// Throws UsageError when a family is half set and no other one complete, naming what is set and what is
/// missing; when a value is no number or out of its range; when ranks on several hosts have no MASTER_ADDR.
std::optional<Ranks> ranks_from_environment(const Environment& environment);

}  // namespace sdp
