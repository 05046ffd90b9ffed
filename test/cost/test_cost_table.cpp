// The rows of the table of workers, and their contents.

#include "cost/plan_text.h"

#include <sstream>
#include <string>
#include <vector>

#include "catch.h"

namespace sdp {
namespace {

ProcessFigures cost(int units, int64_t bytes) {
  ProcessFigures figures;
  figures.units.resize(units);
  figures.parameters = 1000;
  figures.flops_per_sample = 2000;
  figures.parameter_bytes = figures.gradient_bytes = figures.optimizer_bytes = figures.activation_bytes =
      figures.gather_bytes_per_step = bytes;
  figures.peak_bytes = MemoryByKind{.weights = 2 * bytes, .buckets = 3 * bytes};
  return figures;
}

/// Lines below the header, with single spaces between words.
std::vector<std::string> rows_of(const std::string& table) {
  std::istringstream lines(table);
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string row;
    for (std::string word; words >> word;)
      row += (row.empty() ? "" : " ") + word;
    rows.push_back(row);
  }
  REQUIRE(rows.size() >= 2);
  return {rows.begin() + 2, rows.end()};
}

TEST_CASE("equal workers share one row, and there is nothing to summarize") {
  ProcessFigures dense = cost(5, 300);
  dense.peak_bytes.reset();
  CHECK(rows_of(cost_table("worker", std::vector<ProcessFigures>(64, cost(2, 100)), &dense)) ==
        std::vector<std::string>{"0-63 2 1.00 k 2.00 k 100 B 100 B 100 B 100 B 100 B 500 B",
                                 "DDP 5 1.00 k 2.00 k 300 B 300 B 300 B 300 B 300 B"});
}

TEST_CASE("unequal workers are summarized over all of them") {
  const std::vector<ProcessFigures> costs = {cost(2, 100), cost(3, 400), cost(2, 100), cost(2, 100),
                                             cost(2, 100)};
  CHECK(rows_of(cost_table("process", costs, nullptr)) ==
        std::vector<std::string>{"0 2-4 2 1.00 k 2.00 k 100 B 100 B 100 B 100 B 100 B 500 B",
                                 "1 3 1.00 k 2.00 k 400 B 400 B 400 B 400 B 400 B 1.95 KiB",
                                 "smallest 2 1.00 k 2.00 k 100 B 100 B 100 B 100 B 100 B 500 B",
                                 "mean 2.2 1.00 k 2.00 k 160 B 160 B 160 B 160 B 160 B 800 B",
                                 "largest 3 1.00 k 2.00 k 400 B 400 B 400 B 400 B 400 B 1.95 KiB"});
}

}  // namespace
}  // namespace sdp
