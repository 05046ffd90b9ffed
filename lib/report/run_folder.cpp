#include "report/run_folder.h"

#include <system_error>

#include "spec/error.h"

namespace sdp {

namespace fs = std::filesystem;

RunFolder create_run_folder(const fs::path& output_dir, const std::string& name, bool resume) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    throw UsageError("name: \"" + name + "\" cannot be the name of a folder. Give a name without '/'.");
  const RunFolder run = {output_dir / name};

  std::error_code error;
  fs::create_directories(output_dir, error);
  const bool created = !error && fs::create_directory(run.dir, error);
  std::error_code ignored;
  if (error || !fs::is_directory(run.dir, ignored))
    throw UsageError("cannot make the run folder " + run.dir.string() + ": " +
                     (error ? error.message() : "there is a file of that name") +
                     ". Set output.dir or name to another place.");
  // A run that was refused before its first step leaves nothing that could be lost.
  const bool has_results = fs::exists(run.metrics(), ignored) || fs::exists(run.dir / "checkpoints", ignored);
  if (!created && has_results && !resume)
    throw UsageError("the run folder " + run.dir.string() +
                     " exists. Continue that run with --resume, or set another name.");
  return run;
}

}  // namespace sdp
