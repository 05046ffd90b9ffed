#include "cost/make_experiment.h"
#include "run/run_output.h"

#include <map>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "engine/engine_cases.h"
#include "io/file.h"
#include "temp_folder.h"

namespace sdp {
namespace {

using Batches = std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>>;  ///< by worker and replica

int64_t number_of(int64_t worker, int64_t replica, int64_t micro_batch, int64_t sample) {
  return ((worker * 10 + replica) * 10 + micro_batch) * 10 + sample;
}

TEST_CASE("the trace names every worker's samples, in the order of its micro-batches") {
  struct Shape {
    int64_t processes, workers, replicas, micro_batches, batch_size;
  };
  for (const Shape& shape : {Shape{1, 3, 1, 4, 1}, Shape{1, 2, 2, 3, 1}, Shape{2, 4, 1, 2, 1},
                             Shape{1, 4, 1, 2, 3}, Shape{2, 2, 1, 5, 2}, Shape{4, 2, 2, 3, 1}}) {
    CAPTURE(shape.processes, shape.workers, shape.replicas, shape.micro_batches, shape.batch_size);
    ExperimentSpec spec = spec_of(Case{.workers = shape.workers,
                                       .replicas = shape.replicas,
                                       .coverage = "1",
                                       .accumulate_steps = shape.micro_batches,
                                       .model = "mlp"});
    spec.train.batch_size_per_worker = shape.batch_size;
    const Experiment experiment = make_experiment(spec, shape.processes);
    const TempFolder folder;
    const RunFolder run{folder.path()};
    run_thread_ranks(static_cast<int>(shape.processes), [&](Communicator& comm) {
      const std::vector<Slot> slots = experiment.exchanges.slot_map.slots_of(comm.rank());
      std::vector<int64_t> samples;
      for (int64_t micro_batch = 0; micro_batch < shape.micro_batches; ++micro_batch)
        for (const Slot& slot : slots)
          for (int64_t i = 0; i < shape.batch_size; ++i)
            samples.push_back(number_of(slot.worker, slot.replica, micro_batch, i));
      StepTrace trace(experiment, run, comm);
      trace.append(/*step=*/6, at::zeros({static_cast<int64_t>(slots.size())}, at::kDouble), samples);
    });
    Batches found, expected;
    for_each_line(run.trace(), [&](int64_t, const std::string& line, bool) {
      const auto json = nlohmann::json::parse(line);
      CHECK(json["step"] == 7);
      found[{json["worker"], json["replica"]}] = json["samples"].get<std::vector<int64_t>>();
    });
    for (int64_t worker = 0; worker < shape.workers; ++worker)
      for (int64_t replica = 0; replica < shape.replicas; ++replica)
        for (int64_t n = 0; n < shape.micro_batches * shape.batch_size; ++n)
          expected[{worker, replica}].push_back(
              number_of(worker, replica, n / shape.batch_size, n % shape.batch_size));
    CHECK(found == expected);
  }
}

}  // namespace
}  // namespace sdp
