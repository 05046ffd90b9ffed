#pragma once

// The experiment as described by its YAML files. It is composed of sections. The struct of a section belongs
// to the component that it configures, and its initializers are the only place with the defaults. A section
// that comes in kinds has the keys of the chosen kind (spec/one_of.h). The `fields` list of a struct is the
// only place that names its keys; parsing, `sdp-train spec`, the JSON Schema, the saved spec.yaml, `--resume`
// and `report` all walk it (spec/visit.h). Checks that involve several sections are in validate.cpp.
//
// The structs hold plain values: no tensors, ranks or file handles.

#include <cstdint>
#include <string>

#include "data/data_spec.h"
#include "experiment/checkpoint_spec.h"
#include "experiment/eval_spec.h"
#include "experiment/exchange_spec.h"
#include "experiment/schedule_spec.h"
#include "experiment/train_spec.h"
#include "model/model_spec.h"
#include "optim/optimizer_spec.h"
#include "spec/visit.h"
#include "subnet/subnetwork_spec.h"

namespace sdp {

/// The section `output`.
struct OutputSpec {
  static constexpr Treatment treatment{OnResume::kFree, InReport::kNotCompared};

  std::string dir = "runs";
  bool trace = false;

  bool operator==(const OutputSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("dir", &OutputSpec::dir, "folder in which run folders are created");
    field("trace", &OutputSpec::trace, "write trace.jsonl: loss and sample indices of every step and worker");
  }
};

struct ExperimentSpec {
  std::string name;
  int64_t seed = 0;
  ModelSpec model;
  DataSpec data;
  SubnetworkSpec subnetwork;
  OptimizerSpec optimizer;
  ExchangeSpec exchange;
  ScheduleSpec schedule;
  TrainSpec train;
  CheckpointSpec checkpoint;
  EvalSpec eval;
  OutputSpec output;

  bool operator==(const ExperimentSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &ExperimentSpec::name, "name of the run folder", OnResume::kFree, InReport::kNotCompared,
          kRequired);
    field("seed", &ExperimentSpec::seed, "seed of all random number generators", OnResume::kFixed,
          InReport::kNotCompared, at_least(0));
    field("model", &ExperimentSpec::model, "the network");
    field("data", &ExperimentSpec::data, "the data set");
    field("subnetwork", &ExperimentSpec::subnetwork, "how the network is divided among workers");
    field("optimizer", &ExperimentSpec::optimizer, "the update rule");
    field("exchange", &ExperimentSpec::exchange, "local steps of the workers, between exchanges");
    field("schedule", &ExperimentSpec::schedule, "the learning-rate schedule");
    field("train", &ExperimentSpec::train, "the training loop");
    field("checkpoint", &ExperimentSpec::checkpoint, "when checkpoints are saved");
    field("eval", &ExperimentSpec::eval, "evaluation of the assembled full model");
    field("output", &ExperimentSpec::output, "the run folder");
  }
};

/// Over all workers and replicas.
inline int64_t samples_per_step(const ExperimentSpec& spec) {
  return spec.train.batch_size_per_worker * spec.train.accumulate_steps * spec.subnetwork.workers *
         spec.subnetwork.replicas;
}

}  // namespace sdp
