#include <algorithm>
#include <cmath>

#include "catch.h"
#include "report/curves.h"
#include "small_runs.h"

using namespace sdp;

namespace {

const Figure& figure_of(const std::vector<NamedFigure>& figures, const std::string& name) {
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const NamedFigure& figure) { return figure.name == name; });
  REQUIRE(found != figures.end());
  return found->figure;
}

}  // namespace

TEST_CASE("curves are averaged at the steps that they share", "[study]") {
  const Series series =
      averaged({{{10, 1, 2}, {20, 2, 4}, {30, 3, 8}}, {{10, 3, 6}, {15, 3.5, 9}, {20, 4, 4}}});
  // Step 15 is missing in the first curve; at step 30 the second has not arrived.
  CHECK(series.x == std::vector<double>{2, 3, 3});
  CHECK(series.y == std::vector<double>{4, 4, 8});
  REQUIRE(series.y_error.size() == 3);
  CHECK(series.y_error[0] == Approx(std::sqrt(8.0)));
  CHECK(series.y_error[1] == 0);
  CHECK(std::isnan(series.y_error[2]));
  CHECK(averaged({{{1, 1, 1}}}).y_error.empty());
  CHECK(averaged({{}}).x.empty());
}

TEST_CASE("time of training adds up step_ms", "[study]") {
  Run run = small_run();
  run.train = {train_record(10, 3, 100), train_record(20, 2, 50), train_record(26, 2, 10)};
  CHECK(training_seconds(run, 0) == 0);
  CHECK(training_seconds(run, 10) == Approx(1));
  CHECK(training_seconds(run, 15) == Approx(1.25));
  CHECK(training_seconds(run, 26) == Approx(1.56));
  CHECK(training_seconds(run, 100) == Approx(1.56));
}

TEST_CASE("figures of images", "[study]") {
  std::vector<Run> runs = {small_run(0), small_run(1)};
  for (size_t i = 0; i < 2; ++i) {
    const double k = static_cast<double>(i);
    runs[i].train = {train_record(10, 3 + k, 100 + 100 * k), train_record(20, 2 + k, 100 + 100 * k)};
    runs[i].evals = {{.step = 20, .loss = 1, .accuracy = 0.5 + 0.1 * k}};
  }
  const std::vector<NamedFigure> figures = study_figures(group_runs(runs));
  CHECK(figures.size() == 9);
  const auto x_of = [&](const std::string& name) { return figure_of(figures, name).series[0].x; };
  CHECK(x_of("training_loss_steps") == std::vector<double>{10, 20});
  CHECK(x_of("training_loss_flops") == std::vector<double>{80000, 160000});
  CHECK(x_of("training_loss_epochs") == std::vector<double>{0.5, 1});
  CHECK(x_of("training_loss_time") == std::vector<double>{1.5, 3});
  CHECK(x_of("accuracy_flops") == std::vector<double>{160000});
  const Series& loss = figure_of(figures, "training_loss_steps").series[0];
  CHECK(loss.y == std::vector<double>{3.5, 2.5});
  CHECK(loss.y_error[0] == Approx(std::sqrt(0.5)));
  const Figure& memory = figure_of(figures, "accuracy_memory");
  CHECK(memory.series[0].x[0] == Approx((900 + 300 + 20 + 5 + 2) / 1024.0));
  CHECK(memory.series[0].y[0] == Approx(55));
  CHECK(memory.series[0].y_error[0] == Approx(std::sqrt(50)));
  CHECK(memory.x_label == "peak tensor memory per process (KiB)");
}

TEST_CASE("several budgets of a method form one line", "[study]") {
  std::vector<Run> runs = {small_run(0), small_run(1), small_run(0), small_run(0, 4)};
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].spec.train.max_steps = i == 2 ? 100 : 20;
    runs[i].evals = {{.step = i == 2 ? 100 : 20, .accuracy = 0.5 + 0.1 * static_cast<double>(i)}};
  }
  std::vector<NamedFigure> figures = study_figures(group_runs(runs));
  const Figure& figure = figure_of(figures, "accuracy_budget");
  REQUIRE(figure.series.size() == 2);
  CHECK(figure.series[0].name == "B-SDP 2/4");
  CHECK(figure.series[0].x == std::vector<double>{160000, 800000});  // 8000 FLOPs per step
  CHECK(figure.series[0].y[0] == Approx(55));
  CHECK(figure.series[0].y[1] == Approx(70));
  CHECK(figure.series[0].y_error[0] == Approx(std::sqrt(50)));
  REQUIRE(figure.series[1].y.size() == 1);
  CHECK(figure.series[1].y[0] == Approx(80));
  CHECK(figure.series[1].y_error.empty());  // one run
  runs.erase(runs.begin() + 2);
  figures = study_figures(group_runs(runs));
  CHECK(std::none_of(figures.begin(), figures.end(),
                     [](const NamedFigure& each) { return each.name == "accuracy_budget"; }));
}

TEST_CASE("language models have separate figures, with losses", "[study]") {
  Run images = small_run(), tokens = small_run();
  tokens.spec.data.set = TokensSpec{.sequence_length = 128};
  tokens.train = {train_record(10, 3, 100)};
  tokens.evals = {{.step = 10, .loss = 2.5, .accuracy = 0.5}};
  std::vector<NamedFigure> figures = study_figures(group_runs({tokens}));
  CHECK(figures.size() == 9);
  CHECK(figure_of(figures, "training_loss_tokens").series[0].x[0] == 10 * 32 * 128);
  CHECK(figure_of(figures, "eval_loss_steps").series[0].y[0] == 2.5);
  figures = study_figures(group_runs({tokens, images}));
  CHECK(figures.size() == 18);
  CHECK(figure_of(figures, "eval_loss_memory_tokens").series.size() == 1);
  CHECK(figure_of(figures, "accuracy_memory_cifar10").series.size() == 1);
}
