#include <cmath>

#include "catch.h"
#include "report/study_table.h"
#include "report/table_text.h"
#include "small_runs.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

/// B-SDP with two seeds, finished; DDP with one, halfway.
std::vector<Group> three_runs() {
  std::vector<Run> runs = {small_run(0), small_run(1), small_run(0, 4)};
  runs[2].spec.optimizer.shard = false;
  for (size_t i = 0; i < 3; ++i) {
    const double k = static_cast<double>(i);
    runs[i].train = {train_record(15, 2, 10 + k)};
    runs[i].evals = {{.step = 15, .loss = 1, .accuracy = 0.5 + 0.125 * k}};
    if (i < 2) finish(runs[i]);
  }
  runs[2].sweep_label = "DDP & \"all\", 100 %";
  return group_runs(std::move(runs));
}

Statistic value_of(const StudyTable& table, size_t row, const std::string& key, Comparison comparison) {
  for (size_t i = 0; i < table.columns.size(); ++i)
    if (table.columns[i].measure->key == key && table.columns[i].comparison == comparison)
      return table.rows[row].values[i];
  FAIL("no column " << key);
  return {};
}

}  // namespace

TEST_CASE("a row holds statistics over seeds", "[study]") {
  const StudyTable table = make_table(three_runs(), "");
  REQUIRE(table.rows.size() == 2);
  const Statistic accuracy = value_of(table, 0, "accuracy", Comparison::kNone);
  CHECK(accuracy.mean == 0.5625);
  CHECK(accuracy.std == Approx(0.125 / std::sqrt(2)));
  CHECK(accuracy.count == 2);
  CHECK(table.rows[0].seeds == std::vector<int64_t>{0, 1});
  CHECK(table.rows[0].progress.empty());
  CHECK(table.rows[0].device == "CPU");
  CHECK(table.rows[1].progress == "unfinished: step 15 of 30");
  for (const StudyColumn& column : table.columns) {
    CHECK(column.comparison == Comparison::kNone);
    CHECK(column.measure->key != "subnetwork_accuracy_mean");  // no run has one
  }
}

TEST_CASE("comparisons with a baseline", "[study]") {
  const StudyTable table = make_table(three_runs(), "DDP");
  CHECK(table.baselines == std::vector<std::string>{"DDP & \"all\", 100 %"});
  CHECK(value_of(table, 0, "accuracy", Comparison::kDifference).mean == 0.5625 - 0.75);
  CHECK(value_of(table, 0, "step_ms", Comparison::kRatio).mean == Approx(10.5 / 12));
  CHECK(value_of(table, 1, "training_flops", Comparison::kRatio).mean == 1);
  const std::string message = message_of<UsageError>([] { make_table(three_runs(), "X"); });
  CHECK(contains(message, "--baseline X: none"));
  CHECK(contains(message, "\n  B-SDP 2/4\n  DDP & \"all\", 100 %"));
}

TEST_CASE("each budget is compared with the baseline of that budget", "[study]") {
  std::vector<Run> runs;
  for (const int64_t owners : {4, 2})
    for (const double epochs : {20, 60, 200}) {
      if (owners == 4 && epochs == 200) continue;
      Run& run = runs.emplace_back(small_run(0, owners));
      run.spec.train.max_steps = std::nullopt;
      run.spec.train.epochs = epochs;
      run.evals = {{.step = 10, .accuracy = static_cast<double>(owners) / 8 + epochs / 1000}};
    }
  runs[1].evals[0].accuracy = 0.75;
  const StudyTable table = make_table(group_runs(runs), "ZeRO-2");
  CHECK(table.baselines == std::vector<std::string>{"ZeRO-2, epochs 20", "ZeRO-2, epochs 60"});
  REQUIRE(table.rows[2].label == "B-SDP 2/4, epochs 20");
  const auto difference = [&](size_t row) {
    return value_of(table, row, "accuracy", Comparison::kDifference).mean;
  };
  CHECK(difference(1) == 0);
  CHECK(difference(2) == Approx(-0.25));
  CHECK(difference(3) == Approx(0.31 - 0.75));
  CHECK(std::isnan(difference(4)));  // there is no baseline with 200 epochs
}

TEST_CASE("tables as text", "[study]") {
  const StudyTable table = make_table(three_runs(), "DDP");
  const std::string text = to_text(table);
  CHECK(contains(text, "B-SDP 2/4 "));
  CHECK(contains(text, "56.25 ± 8.84"));
  CHECK(contains(text, "-18.75"));
  CHECK(contains(text, "(unfinished: step 15 of 30)"));
  CHECK_FALSE(contains(text, "loss"));  // only accuracy is shown for images

  const std::string markdown = to_markdown(table);
  CHECK(contains(markdown, "| configuration | C | runs | accuracy (%) | accuracy difference (points) |"));
  CHECK(contains(markdown, "\n| :--- | ---: | ---: |"));
  CHECK(contains(markdown, "\n| B-SDP 2/4 | 2/4 | 2 | 56.25 ± 8.84 | -18.75 |"));

  const std::string latex = to_latex(table);
  CHECK(contains(latex, "\\toprule\nconfiguration & C & runs & accuracy (\\%) &"));
  CHECK(contains(latex, "DDP \\& \"all\", 100 \\% (unfinished"));
  CHECK(contains(latex, "56.25 $\\pm$ 8.84"));
  CHECK(contains(latex, "\\bottomrule\n\\end{tabular}\n"));
}

TEST_CASE("a language model's table shows loss and perplexity", "[study]") {
  std::vector<Run> runs = {small_run(0), small_run(1)};
  for (Run& run : runs) {
    run.spec.data.set = TokensSpec();
    run.evals = {{.step = 30, .loss = std::log(20.0), .accuracy = 0.5, .subnetwork_loss = {2, 3}}};
  }
  runs[1].evals[0].loss = std::log(30.0);
  const std::string markdown = to_markdown(make_table(group_runs(std::move(runs)), ""));
  CHECK(contains(markdown, "| configuration | C | runs | loss | perplexity | subnetworks' loss |"));
  CHECK(contains(markdown, "| 3.1985 ± 0.2867 | 25.00 ± 7.07 | 2.5000 ± 0.0000 |"));
  CHECK_FALSE(contains(markdown, "accuracy"));
}

TEST_CASE("changes during training are marked and reported", "[study]") {
  std::vector<Run> runs = {small_run(0), small_run(0)};
  for (Run& run : runs) {
    run.evals = {{.step = 30, .accuracy = 0.5}};
    finish(run);
  }
  runs[1].spec.optimizer.rule = SgdSpec{.lr = 0.5};
  runs[1].history.changes = {{.step = 20, .key = "optimizer.lr", .was = "0.1", .now = "0.5"}};
  const StudyTable table = make_table(group_runs(std::move(runs)), "");
  const std::string note =
      "B-SDP 2/4, lr 0.1, 0.5 from step 20: changed during training: optimizer.lr 0.1, 0.5 from step 20";
  CHECK(contains(to_text(table), "B-SDP 2/4, lr 0.1, 0.5 from step 20 * "));
  CHECK(contains(to_text(table), "\n* " + note + "\n"));
  CHECK(contains(to_markdown(table), "| B-SDP 2/4, lr 0.1, 0.5 from step 20 \\* |"));
  CHECK(contains(to_markdown(table), "\n\n\\* " + note + "\n"));
  CHECK(contains(to_latex(table), "B-SDP 2/4, lr 0.1, 0.5 from step 20 * &"));
  CHECK(contains(to_latex(table), "\\end{tabular}\n\\par{\\footnotesize * " + note + "}\n"));
  CHECK(contains(to_csv(table),
                 "\n\"B-SDP 2/4, lr 0.1, 0.5 from step 20\",cifar10,B-SDP,2/4,1,0,0,2,CPU,,"
                 "\"optimizer.lr 0.1, 0.5 from step 20\",0.5,"));
  CHECK(contains(to_text(table), "B-SDP 2/4, lr 0.1  "));  // and no mark
}

TEST_CASE("each data set has a separate table", "[study]") {
  std::vector<Run> runs = {small_run(0), small_run(0, 4), small_run(0), small_run(0, 4)};
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].evals = {{.step = 30, .loss = 1.25, .accuracy = 0.125 * static_cast<double>(i + 1)}};
    if (i > 1) runs[i].spec.data.set = TokensSpec();
  }
  const std::vector<Group> groups = group_runs(std::move(runs));
  const StudyTable table = make_table(groups, "ZeRO-2");
  CHECK(table.baselines == std::vector<std::string>{"ZeRO-2", "ZeRO-2"});
  CHECK(value_of(table, 0, "accuracy", Comparison::kDifference).mean == 0.125 - 0.25);
  CHECK(value_of(table, 2, "accuracy", Comparison::kDifference).mean == 0.375 - 0.5);
  const std::string text = to_text(table);
  REQUIRE(text.starts_with("data set cifar10\nconfiguration "));
  const size_t second = text.find("\n\ndata set tokens\nconfiguration ");
  REQUIRE(second != std::string::npos);
  CHECK(contains(text.substr(0, second), "25.00"));
  CHECK_FALSE(contains(text.substr(0, second), "loss"));
  CHECK_FALSE(contains(text.substr(second), "accuracy"));
  CHECK(contains(text.substr(second), "1.2500"));
  CHECK(to_markdown(table).starts_with("Data set cifar10:\n\n| configuration |"));
  CHECK(contains(to_markdown(table), " |\n\nData set tokens:\n\n| configuration |"));
  CHECK(contains(to_latex(table), "\\end{tabular}\n% data set tokens\n\\begin{tabular}"));
  CHECK(contains(to_csv(table), "\nZeRO-2,tokens,"));
}

TEST_CASE("CSV keeps every bit", "[study]") {
  std::vector<Group> groups = three_runs();
  groups[0].runs[0].evals[0].accuracy = groups[0].runs[1].evals[0].accuracy = 1.0 / 3;
  const std::string csv = to_csv(make_table(groups, "DDP"));
  CHECK(csv.starts_with(
      "label,data_set,regime,coverage,runs,unfinished_runs,seeds,processes,device,imported,changes,accuracy,"
      "accuracy_std,"
      "accuracy_minus_baseline,loss_nats,"));
  CHECK(contains(csv, "\nB-SDP 2/4,cifar10,B-SDP,2/4,2,0,0 1,2,CPU,,,0.3333333333333333,0,"));
  CHECK(contains(csv, "\n\"DDP & \"\"all\"\", 100 %\",cifar10,DDP,1,1,1,0,2,,,,0.75,,0,"));
}
