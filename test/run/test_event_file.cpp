#include <cmath>
#include <limits>

#include "catch.h"
#include "io/event_file.h"
#include "io/file.h"
#include "run/run_metrics.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values)
    text += static_cast<char>(value);
  return text;
}

std::vector<std::string> event_files(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& file : files_matching(folder.path(), "events.out.tfevents.*"))
    names.push_back(file.filename().string());
  return names;
}

}  // namespace

TEST_CASE("CRC-32C of RFC 3720's examples", "[events]") {
  std::string ascending;
  for (int i = 0; i < 32; ++i)
    ascending += static_cast<char>(i);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  CHECK(crc32c(ascending) == 0x46dd794e);
  CHECK(crc32c("") == 0);
}

TEST_CASE("an event in protobuf's wire format, byte by byte", "[events]") {
  // 1.5 is 0x3ff8000000000000 as a double, 0.5 is 0x3f000000 as a float; 300 is ac 02 as a varint.
  CHECK(scalars_event(1.5, 300, {{"a/b", 0.5}}) ==
        bytes({0x09, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f}) + bytes({0x10, 0xac, 0x02}) +
            bytes({0x2a, 12, 0x0a, 10, 0x0a, 3, 'a', '/', 'b', 0x15, 0, 0, 0, 0x3f}));
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(scalars_event(1.5, 300, {{"x", std::nan("")}, {"y", -infinity}, {"a/b", 0.5}}) ==
        scalars_event(1.5, 300, {{"a/b", 0.5}}));
}

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

TEST_CASE("records go to both files; nulls of the line are not written as scalars", "[events]") {
  // The values are compared with those of the metrics by test/cli/test_events.py.
  const StartRecord start = {.step = 0, .data_s = 1};
  const TrainRecord train = {.step = 4, .loss = 2, .overlap = std::nan("")};
  const EvalRecord eval = {.step = 4, .loss = 1, .accuracy = 0.5};
  const TempFolder folder;
  const RunFolder run = {folder.path()};
  RunMetrics metrics(run, 0, ExperimentSpec());
  metrics.append(start);
  metrics.append(train);
  metrics.append(eval);
  CHECK(get(run.metrics()) ==
        to_json_line(start) + "\n" + to_json_line(train) + "\n" + to_json_line(eval) + "\n");
  const std::string events = get(folder.path() / event_files(folder).front());
  for (const char* part : {"brain.Event:2", "train/loss", "optimizer.lr", "eval/accuracy"})
    CHECK(contains(events, part));
  CHECK_FALSE(contains(events, "train/overlap"));
}
