#include "external_command.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "spec/error.h"

namespace sdp {

int external_command(const std::string& name, std::vector<std::string> arguments) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path bin = self.parent_path();
  const std::string program = "sdp-train-" + name;
  setenv("SDP_TRAIN", self.c_str(), /*overwrite=*/1);
  std::fflush(stdout);
  for (const fs::path& folder : {bin, bin.parent_path() / "libexec" / "sdp-train"}) {
    std::string path = (folder / program).string();
    std::vector<char*> argv = {path.data()};
    for (std::string& argument : arguments)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(path.c_str(), argv.data());
  }
  std::fprintf(stderr,
               "error: sdp-train %s is a program in Python, %s, that is neither in %s nor in "
               "../libexec/sdp-train. Build or install sdp-train again, and run scripts/setup for its "
               "packages.\n",
               name.c_str(), program.c_str(), bin.c_str());
  return static_cast<int>(ExitCode::kUsage);
}

}  // namespace sdp
