// What TensorBoard reads from the files, and their checksums: test/cli/test_resume.py.

#include <cmath>

#include "catch.h"
#include "io/event_file.h"
#include "io/file.h"
#include "run/run_metrics.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

std::vector<std::string> event_files(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& file : files_matching(folder.path(), "events.out.tfevents.*"))
    names.push_back(file.filename().string());
  return names;
}

}  // namespace

TEST_CASE("a folder's event files are named in the order of their creation", "[events]") {
  const TempFolder folder;
  put(folder / "events.out.tfevents.9000000000.elsewhere", "of a host whose clock is ahead");
  for (int i = 0; i < 3; ++i)
    EventFile(folder.path(), 0, {}).append(1, {{"train/loss", 1}});
  const std::vector<std::string> names = event_files(folder);
  REQUIRE(names.size() == 4);
  for (int i = 1; i < 4; ++i)
    CHECK(names[static_cast<size_t>(i)].starts_with("events.out.tfevents.900000000" + std::to_string(i)));
}

TEST_CASE("records go to both files; values that are not finite are not written as scalars", "[events]") {
  const TrainRecord train = {.step = 4, .loss = 2, .overlap = std::nan("")};
  const EvalRecord eval = {.step = 4, .loss = 1, .accuracy = 0.5};
  const TempFolder folder;
  const RunFolder run = {folder.path()};
  RunMetrics metrics(run, 0, ExperimentSpec());
  metrics.append(train);
  metrics.append(eval);
  CHECK(get(run.metrics()) == to_json_line(train) + "\n" + to_json_line(eval) + "\n");
  const std::string events = get(folder.path() / event_files(folder).front());
  for (const char* part : {"train/loss", "eval/accuracy"})
    CHECK(contains(events, part));
  CHECK_FALSE(contains(events, "train/overlap"));
  CHECK(scalars_event(1.5, 300, {{"x", std::nan("")}, {"y", -INFINITY}, {"a/b", 0.5}}) ==
        scalars_event(1.5, 300, {{"a/b", 0.5}}));
}
