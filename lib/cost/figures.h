#pragma once

// All figures of a plan, as typed values: plan.json contains them, `sdp-train plan` prints them, and `report`
// reads them from a run.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cost/accounting.h"
#include "cost/forecast.h"
#include "experiment/experiment.h"
#include "experiment/print.h"
#include "process/memory_kinds.h"
#include "subnet/depth.h"
#include "subnet/plan.h"
#include "subnet/spectral.h"

namespace sdp {

/// Figures of one worker or process.
struct ProcessFigures : Cost {
  int64_t activation_bytes = 0;  ///< saved activations of a micro-batch, of the slot with the most
  std::optional<int> node = {};
  std::optional<int64_t> bytes_sent_between_nodes_per_step = {};
  std::optional<MemoryByKind> peak_bytes = {};  ///< in training; from the forecast, as that in evaluation
  std::optional<int64_t> evaluation_peak_bytes = {};

  template <class Visitor>
  static void fields(Visitor& field) {
    Cost::fields(field);
    field("activation_bytes", &ProcessFigures::activation_bytes);
    field("node", &ProcessFigures::node);
    field("bytes_sent_between_nodes_per_step", &ProcessFigures::bytes_sent_between_nodes_per_step);
    field("peak_bytes", &ProcessFigures::peak_bytes);
    field("evaluation_peak_bytes", &ProcessFigures::evaluation_peak_bytes);
  }
};

/// Spectra of the co-ownership matrix, with units weighted equally, by parameters and by FLOPs.
struct SpectrumFigures {
  Spectrum by_unit;
  Spectrum by_parameters;
  Spectrum by_flops;
  double lambda2_normalized_bound = 0;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("by_unit", &SpectrumFigures::by_unit);
    field("by_parameters", &SpectrumFigures::by_parameters);
    field("by_flops", &SpectrumFigures::by_flops);
    field("lambda2_normalized_bound", &SpectrumFigures::lambda2_normalized_bound);
  }
};

/// Largest value over the workers divided by the mean.
struct BalanceFigures {
  double flops = 1;
  double parameters = 1;
  double state_bytes = 1;
  double bytes_sent = 1;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("flops_max_over_mean", &BalanceFigures::flops);
    field("parameters_max_over_mean", &BalanceFigures::parameters);
    field("state_bytes_max_over_mean", &BalanceFigures::state_bytes);
    field("bytes_sent_max_over_mean", &BalanceFigures::bytes_sent);
  }
};

/// Traffic inside and between nodes.
struct NodeFigures {
  NodePlacement placement = NodePlacement::kInOrder;
  int nodes = 1;
  int processes_per_node = 1;
  int units_in_one_node = 0;
  NodeTraffic sdp;
  NodeTraffic ddp;       ///< data parallelism on equally many processes, with the engine's exchange
  NodeTraffic ddp_ring;  ///< data parallelism with a ring all-reduce

  template <class Visitor>
  static void fields(Visitor& field) {
    field("placement", &NodeFigures::placement);
    field("nodes", &NodeFigures::nodes);
    field("processes_per_node", &NodeFigures::processes_per_node);
    field("units_in_one_node", &NodeFigures::units_in_one_node);
    field("sdp", &NodeFigures::sdp);
    field("ddp", &NodeFigures::ddp);
    field("ddp_ring", &NodeFigures::ddp_ring);
  }
};

struct PlanFigures : PlanIdentity {
  std::string hash;
  SpectrumFigures spectrum;
  BalanceFigures balance;
  double flops_share = 0;  ///< of the full model's FLOPs, mean over workers
  int replicas = 1;
  int processes = 0;
  std::vector<ProcessFigures> per_worker;   ///< with one process per worker and no replicas
  std::vector<ProcessFigures> per_process;  ///< with the experiment's exchange plan
  ProcessFigures dense;                     ///< data parallelism of the full model on n processes
  NodeFigures nodes;
  std::vector<WorkerDepth> depth;  ///< by worker, in block construction; empty in neuron construction
  std::vector<std::string> warnings;
  std::optional<Forecast> forecast;

  int64_t format() const { return kRunFormat; }
  double lambda2() const { return spectrum.by_unit.lambda2; }
  double spectral_gap() const { return spectrum.by_unit.spectral_gap; }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("format", &PlanFigures::format);
    PlanIdentity::fields(field);
    field("hash", &PlanFigures::hash);
    field("lambda2", &PlanFigures::lambda2);
    field("spectral_gap", &PlanFigures::spectral_gap);
    field("spectrum", &PlanFigures::spectrum);
    field("balance", &PlanFigures::balance);
    field("flops_share", &PlanFigures::flops_share);
    field("replicas", &PlanFigures::replicas);
    field("processes", &PlanFigures::processes);
    field("per_worker", &PlanFigures::per_worker);
    field("per_process", &PlanFigures::per_process);
    field("dense", &PlanFigures::dense);
    field("nodes", &PlanFigures::nodes);
    field("depth", &PlanFigures::depth);
    field("warnings", &PlanFigures::warnings);
    field("forecast", &PlanFigures::forecast);
  }
};

/// The figures without a forecast.
PlanFigures figures_of(const Experiment& experiment);
/// The figures with the forecast of a run in which every process has such a device.
PlanFigures figures_of(const Experiment& experiment, const DeviceProfile& device);

/// The text of plan.json.
std::string to_json(const PlanFigures& figures);

}  // namespace sdp
