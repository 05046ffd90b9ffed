#include "study/report_files.h"

#include <fmt/format.h>

#include <set>

#include "io/atomic_file.h"
#include "study/curves.h"
#include "study/table_text.h"

namespace sdp {
namespace {

/// What the reader has to know of the numbers.
std::string notes(const std::vector<Group>& groups, const StudyTable& table,
                  const std::vector<UnreadableRun>& left_out) {
  std::string text =
      "Accuracies and losses are those of the assembled full model in its last evaluation; \"uncorrected\" "
      "is without BatchNorm recalibration and branch scale; \"subnetworks\" are single workers' models. ± is "
      "the sample standard deviation over runs that differ in their seed only. FLOPs are those of training, "
      "of all workers. Peak memory is that of tensors in training, of the process that held most; times are "
      "medians; parameters are those of the largest worker.\n";
  if (!table.baseline.empty()) text += fmt::format("\nRatios and differences are to: {}.\n", table.baseline);
  std::set<std::string> devices;
  for (const Group& group : groups)
    for (const Run& run : group.runs)
      if (run.end)
        devices.insert(fmt::format("{} process{} on {}, sdp-train {}", run.plan.processes,
                                   run.plan.processes == 1 ? "" : "es", run.end->device, run.end->version));
  for (const std::string& device : devices)
    text += fmt::format("\nFinished on: {}.\n", device);
  for (const UnreadableRun& run : left_out)
    text += fmt::format("\nLeft out: `{}`: {}\n", run.dir.string(), run.reason);
  return text;
}

std::string run_list(const std::vector<Group>& groups) {
  std::string text = "\n## Runs\n\n";
  for (const Group& group : groups)
    for (const Run& run : group.runs)
      text += fmt::format("- {}: `{}`, seed {}, {} {}\n", group.label, run.dir.string(), run.spec.seed,
                          run.is_finished() ? "finished at step" : "unfinished, step", run.step());
  return text;
}

}  // namespace

std::vector<std::string> write_report(const std::vector<Group>& groups, const StudyTable& table,
                                      const std::vector<UnreadableRun>& left_out,
                                      const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw_io_error("make the folder", folder, error.value());
  std::vector<std::string> names;
  const auto write = [&](const std::string& name, const std::string& text) {
    write_file_atomically(folder / name, text);
    names.push_back(name);
  };
  const std::string markdown = to_markdown(table);
  write("table.md", markdown);
  write("table.tex", to_latex(table));
  write("table.csv", to_csv(table));
  std::string pictures;
  for (const NamedFigure& named : study_figures(groups)) {
    write_figure(named.figure, folder, named.name);
    names.insert(names.end(), {named.name + ".svg", named.name + ".png"});
    pictures +=
        fmt::format("\n![{} against {}]({}.svg)\n", named.figure.title, named.figure.x_label, named.name);
  }
  write("report.md", fmt::format("# Report\n\n{}\n{}{}\n## Figures\n{}", markdown,
                                 notes(groups, table, left_out), run_list(groups), pictures));
  return names;
}

}  // namespace sdp
