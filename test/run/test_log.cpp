#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <regex>

#include "catch.h"
#include "run/log.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;
using namespace std::string_literals;

namespace {

/// Redirects a descriptor (1 or 2) to a file until the end of the scope.
class Captured {
 public:
  Captured(int descriptor, const std::filesystem::path& path)
      : descriptor_(descriptor), saved_(dup(descriptor)) {
    std::fflush(nullptr);
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(file, descriptor_);
    close(file);
  }
  ~Captured() {
    std::fflush(nullptr);
    dup2(saved_, descriptor_);
    close(saved_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

 private:
  int descriptor_;
  int saved_;
};

/// What a logger prints to standard output and standard error for one message of each level.
std::pair<std::string, std::string> output_of(int rank, bool console) {
  const TempFolder folder;
  {
    const Captured out(1, folder / "out");
    const Captured err(2, folder / "err");
    const Logger logger = make_logger(rank, std::nullopt, console);
    logger.info("step {1} of 2");
    logger.warn("slow");
    logger.error("broken");
  }
  return {get(folder / "out"), get(folder / "err")};
}

}  // namespace

TEST_CASE("the console shows messages of rank 0, and warnings and errors of all ranks", "[log]") {
  CHECK(output_of(0, true) == std::pair("step {1} of 2\n"s, "warning: slow\nerror: broken\n"s));
  CHECK(output_of(3, true) == std::pair(""s, "rank 3: warning: slow\nrank 3: error: broken\n"s));
  CHECK(output_of(0, false) == std::pair(""s, ""s));
}

TEST_CASE("the log file has time, rank and level, and is appended to", "[log]") {
  const TempFolder folder;
  put(folder / "log.txt", "before\n");
  const Logger first = make_logger(0, folder / "log.txt", false);
  const Logger second = make_logger(1, folder / "log.txt", false);
  first.info("one");
  CHECK(get(folder / "log.txt") == "before\n");
  first.begin_file();
  second.begin_file();
  second.warn("two");
  first.error("three");
  const std::string time = R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} )";
  CHECK(std::regex_match(get(folder / "log.txt"),
                         std::regex("before\n" + time + "rank 0 info: one\n" + time +
                                    "rank 1 warning: two\n" + time + "rank 0 error: three\n")));
  CHECK(contains(message_of<DataError>([&] { make_logger(0, folder / "log.txt/below", false).begin_file(); }),
                 "below"));
}
