#pragma once

// The checks of `doctor`, and the rates that it measures.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "cost/device_profile.h"
#include "doctor/finding.h"
#include "experiment/experiment_spec.h"

namespace sdp {

// The collectives that training uses, against plain sums, and their rates.

/// The Communicator's functions to check. Each behaves as documented there and has finished on return.
struct ExchangeCalls {
  std::function<void(const at::Tensor& recv, const at::Tensor& send, const std::vector<int64_t>& recv_splits,
                     const std::vector<int64_t>& send_splits)>
      all_to_all;
  std::function<void(const at::Tensor& tensor)> all_reduce_sum;
  std::function<void(const at::Tensor& tensor, int root)> broadcast;
  std::function<void(const at::Tensor& out, const at::Tensor& in)> all_gather;
};
ExchangeCalls calls_of(Communicator& comm);

/// Collective. Exchanges integers that every type represents exactly, with splits that differ between ranks
/// and are partly zero, and compares the results with what each rank computes by itself.
Finding check_exchange(const ExchangeCalls& calls, int rank, int size, at::Device device);

/// Rates at which a process sends to others in an all-to-all with equal splits: to the other processes of its
/// host, and to those of other hosts. 0: there are none.
struct LinkRates {
  double inside_bytes_per_s = 0;
  double between_bytes_per_s = 0;
};

/// Collective. `hosts`: the hosts of all ranks.
LinkRates measure_links(Communicator& comm, const std::vector<std::string>& hosts);

// Rates of the ranks' devices and of the links between them: the profile that `plan --device FILE` reads.

/// Collective. All ranks measure at the same time, as they compute at the same time in training. `hosts`: of
/// all ranks. The rate of a link that this rank does not have is 0.
DeviceProfiles measure_rates(Communicator& comm, const std::vector<std::string>& hosts);

/// One profile for all ranks. Every rate is that of the slowest rank, as the others wait for it. A link that
/// was not measured, because there is only one process or one host, gets the rate of the next faster link or
/// of the device's memory.
DeviceProfiles common_profiles(const std::vector<DeviceProfiles>& of_ranks);

/// The range of the ranks' rates of products and copies, and the slowest rank if they differ.
std::string device_rates_text(const std::vector<DeviceProfiles>& of_ranks);
/// The same of the links between them.
std::string link_rates_text(const std::vector<DeviceProfiles>& of_ranks);

// Whether runs of these ranks can share a folder.

/// Collective; `host` is this rank's. Rank 0 creates a folder in `parent`, or in the nearest existing folder
/// above it, and locks it as a run does; a second lock must be refused. All ranks must see the folder, and
/// each writes a file into it as a run does. Finally it is removed.
Finding check_run_folder(Communicator& comm, const std::filesystem::path& parent, const std::string& host);

// One step of N-SDP on a tiny `mlp`, trained on the ranks' device as in a run, against an oracle in plain
// tensor operations on the CPU. All models and regimes: the tests with the label `device`.

/// All parameters, fp64 on the CPU, in the full model's shapes and the layout's order.
using FullValues = std::vector<at::Tensor>;

/// Half coverage, and as many workers as processes, but at least four and an even number.
ExperimentSpec masked_step_spec(Precision precision, int processes);

/// The parameters after the step, by an oracle: the whole model in which every worker multiplies the hidden
/// units that it does not own by 0. Each gradient is averaged over its owners. Of lib/model and lib/engine it
/// uses only the plan, which says who owns what, and the initial values.
FullValues oracle_values(const ExperimentSpec& fp64_spec);

/// Collective. Takes the step on the device of `comm`, in the spec's precision, and returns the difference
/// relative to what the step changes: || found - expected || / || expected - initial ||, over all parameters.
/// The same on all ranks.
double step_difference(const ExperimentSpec& spec, const FullValues& expected, Communicator& comm);

/// Collective. Takes the step in fp64, where a difference of at most 1e-9 from the oracle's values passes,
/// and in bf16, where at most 0.25 does: rounding causes up to 0.07, a gradient averaged over the wrong
/// number of workers, or without one of them, 0.3 or more.
Finding check_masked_step(const FullValues& expected, Communicator& comm);

}  // namespace sdp
