#pragma once

// The experiment as its YAML file says it, composed of sections. Each section is the struct of who it is for,
// with every default written once, in its initialiser; what comes in kinds has the keys of the kind that it
// is (spec/one_of.h). The `fields` list of a struct is the only place that knows its keys; parsing,
// `sdp-train spec`, the JSON Schema, the saved spec.yaml, `--resume` and `report` all walk it (spec/visit.h).
// What takes several sections is in validate.cpp.
//
// Plain values: no tensor, no rank, no file handle.

#include <cstdint>
#include <string>

#include "data/data_spec.h"
#include "experiment/spec/checkpoint_spec.h"
#include "experiment/spec/eval_spec.h"
#include "experiment/spec/output_spec.h"
#include "experiment/spec/schedule_spec.h"
#include "experiment/spec/train_spec.h"
#include "model/model_spec.h"
#include "optim/optimizer_spec.h"
#include "subnet/subnetwork_spec.h"

namespace sdp {

struct ExperimentSpec {
  std::string name;
  int64_t seed = 0;
  ModelSpec model;
  DataSpec data;
  SubnetworkSpec subnetwork;
  OptimizerSpec optimizer;
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
    field("seed", &ExperimentSpec::seed, "seed of every random choice", OnResume::kFixed,
          InReport::kNotCompared, at_least(0));
    field("model", &ExperimentSpec::model, "the network");
    field("data", &ExperimentSpec::data, "the data set");
    field("subnetwork", &ExperimentSpec::subnetwork, "how the network is divided over workers");
    field("optimizer", &ExperimentSpec::optimizer, "the update rule");
    field("schedule", &ExperimentSpec::schedule, "the learning-rate schedule");
    field("train", &ExperimentSpec::train, "the training loop");
    field("checkpoint", &ExperimentSpec::checkpoint, "saving");
    field("eval", &ExperimentSpec::eval, "evaluation of the assembled full model");
    field("output", &ExperimentSpec::output, "the run folder");
  }
};

}  // namespace sdp
