#include "catch.h"
#include "run/run_history.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

const DataIdentity kTraining = {.samples = 50, .hash = "aa"};
const DataIdentity kTest = {.samples = 10, .hash = "bb"};

}  // namespace

TEST_CASE("a history is read back unchanged", "[run_history]") {
  const TempFolder folder;
  const std::filesystem::path path = folder / "run.json";
  CHECK_FALSE(read_history(path).has_value());
  RunHistory history = {.id = "0123456789abcdef",
                        .began = "2026-11-22T18:30:00Z",
                        .training_data = kTraining,
                        .test_data = kTest};
  put(path, history_text(history));
  CHECK(read_history(path) == history);
  history.imported = {.path = "/a/net.safetensors", .bytes = 123, .xxh3_128 = "cc"};
  history.changes = {{.step = 10, .key = "optimizer.lr", .was = "0.1", .now = "0.01"}};
  put(path, history_text(history));
  CHECK(read_history(path) == history);
  for (const char* text : {"", "[]", "{\"id\": 3}", "{\"id\": \"x\", \"began\": \"\"}"}) {
    put(path, text);
    CHECK(contains(message_of<DataError>([&] { read_history(path); }), path.string()));
  }
}

TEST_CASE("a history grows by the changes between the parts of a run", "[run_history]") {
  const SpecChange lr = {.key = "optimizer.lr", .saved = "0.1", .now = "0.01"};
  RunHistory history = new_history();
  const std::string id = history.id;
  CHECK(id.size() == 16);
  CHECK(new_history().id != id);
  continue_history(history, 0, {lr}, kTraining, kTest);  // no step was trained with 0.1
  CHECK(history.changes.empty());
  CHECK(history.training_data == kTraining);
  CHECK(history.test_data == kTest);
  continue_history(history, 10, {lr}, kTraining, kTest);
  continue_history(history, 20, {}, kTraining, {.samples = 10, .hash = "dd"});
  CHECK(history.id == id);
  CHECK(history.changes ==
        std::vector<RunChange>{{.step = 10, .key = "optimizer.lr", .was = "0.1", .now = "0.01"},
                               {.step = 20, .key = "test_data", .was = "bb", .now = "dd"}});
  CHECK(history.test_data.hash == "dd");
}
