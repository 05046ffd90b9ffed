#include <cmath>

#include "catch.h"
#include "report/watch_view.h"
#include "small_runs.h"
#include "temp_folder.h"

using namespace sdp;

TEST_CASE("sparklines", "[study]") {
  CHECK(sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 20) == "▁▂▃▄▅▆▇█");
  CHECK(sparkline({7, 7, 0, 0, 3, 4}, 3) == "█▁▅");
  CHECK(sparkline({1, NAN, 3}, 20) == "▁ █");
  CHECK(sparkline({2, 2}, 20) == "▁▁");
  CHECK(sparkline({}, 20).empty());
}

TEST_CASE("one line per run", "[study]") {
  Run going = small_run(), done = small_run(), new_run = small_run();
  going.train = {train_record(10, 3, 100), train_record(15, 2, 200)};
  going.evals = {{.step = 10, .loss = 1, .accuracy = 0.1234}};
  done.spec.name = "done";
  done.train = {train_record(30, 1, 100)};
  finish(done);
  new_run.spec.name = "new";
  new_run.spec.train.max_steps.reset();
  const std::string view =
      watch_view({{going, done, new_run}, {{"runs/bad", "plan.json: no such file"}}}, 200);
  CHECK(contains(view, "3 runs, 1 finished\n"));
  // 15 steps are left, at a median of 150 ms.
  CHECK(contains(view, "small  15/30   50 %  2.0000  █▁"));
  CHECK(contains(view, " 12.34 % "));
  CHECK(contains(view, " 2.2 s "));
  CHECK(contains(view, "1.20 KiB"));
  CHECK(contains(view, "  tensor memory  process memory\n"));
  CHECK(contains(view, "finished       1.20 KiB        1.00 MiB\n"));
  CHECK(contains(view, "0/?"));
  CHECK(contains(view, "runs/bad: cannot be read: plan.json: no such file\n"));
}

TEST_CASE("lines fit the terminal", "[study]") {
  Run run = small_run();
  for (int i = 1; i < 30; ++i)
    run.train.push_back(train_record(i, i, 1));
  for (const size_t columns : {10, 40, 60}) {
    size_t width = 0;
    for (const char c : watch_view({{run}, {}}, columns)) {
      width = c == '\n' ? 0 : width + ((c & 0xC0) != 0x80);
      CHECK(width <= columns);
    }
  }
}
