#include "report/report_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "io/atomic_file.h"
#include "report/curves.h"
#include "report/table_text.h"

namespace sdp {
namespace {

/// How to read the numbers.
std::string notes(const std::vector<Group>& groups, const StudyTable& table, const FoundRuns& found) {
  std::string text =
      "Accuracies and losses are those of the assembled full model in its last evaluation; \"uncorrected\" "
      "is without BatchNorm recalibration and branch scale; \"subnetworks\" are the workers' subnetworks. ± "
      "is "
      "the sample standard deviation over runs that differ only in their seed. FLOPs are those of training, "
      "of all workers. Tensor memory is the largest peak of a process's tensors in training; "
      "process "
      "memory is that of a whole process, resident on a CPU and reserved on a GPU, with evaluations. Times "
      "are medians over the lines of the metrics; their parts are means over the processes (waiting for "
      "data: "
      "the longest). FLOP/s are those of "
      "the plan. Utilization is their share of the devices' peak. Training accuracy is that of the "
      "subnetworks on the augmented images of the last line. Parameters are those of the largest "
      "worker.\n";
  if (!table.baselines.empty())
    text += fmt::format("\nRatios and differences are relative to: {}.\n",
                        fmt::join(std::set(table.baselines.begin(), table.baselines.end()), "; "));
  std::set<std::string> devices;
  for (const Group& group : groups)
    for (const Run& run : group.runs)
      if (run.end)
        devices.insert(fmt::format("{} process{} on {}, sdp-train {}", run.plan.processes,
                                   run.plan.processes == 1 ? "" : "es", run.end->device, run.end->version));
  for (const std::string& device : devices)
    text += fmt::format("\nFinished on: {}.\n", device);
  for (const UnreadableRun& run : found.unreadable)
    text += fmt::format("\nLeft out: `{}`: {}\n", run.dir.string(), run.reason);
  for (const CopiedRun& run : found.copies)
    text += fmt::format("\nLeft out: `{}`: the same run as `{}`\n", run.dir.string(), run.counted.string());
  return text;
}

std::string origin_text(const RunHistory& history) {
  if (!history.imported) return "";
  return fmt::format(", first weights imported from `{}` (XXH3-128 {})", history.imported->path,
                     history.imported->xxh3_128);
}

std::string run_list(const std::vector<Group>& groups) {
  std::string text = "\n## Runs\n\n";
  for (const Group& group : groups)
    for (const Run& run : group.runs)
      text += fmt::format("- {}: `{}`, seed {}, {} {}{}\n", group.label, run.dir.string(), run.spec.seed,
                          run.is_finished() ? "finished at step" : "unfinished, step", run.step(),
                          origin_text(run.history));
  return text;
}

}  // namespace

std::vector<std::string> write_report(const std::vector<Group>& groups, const StudyTable& table,
                                      const FoundRuns& found, const std::filesystem::path& folder) {
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
    names.push_back(named.name + ".svg");
    pictures +=
        fmt::format("\n![{} against {}]({}.svg)\n", named.figure.title, named.figure.x_label, named.name);
  }
  write("report.md", fmt::format("# Report\n\n{}\n{}{}\n## Figures\n{}", markdown,
                                 notes(groups, table, found), run_list(groups), pictures));
  return names;
}

}  // namespace sdp
