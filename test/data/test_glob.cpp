#include "catch.h"
#include "fixtures.h"
#include "io/file.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

std::vector<std::string> names_matching(const std::filesystem::path& folder, const std::string& pattern) {
  std::vector<std::string> names;
  for (const std::filesystem::path& file : files_matching(folder, pattern)) {
    CHECK(file.parent_path() == folder);
    names.push_back(file.filename().string());
  }
  return names;
}

}  // namespace

TEST_CASE("files match a pattern of names and are sorted by name", "[data]") {
  const TempFolder folder;
  for (const char* name : {"b_10.bin", "b_9.bin", "a_1.bin", "B_1.bin", "b_1.txt", ".b_1.bin", "b_1.bin.tmp",
                           "odd[1].bin", "inner/b_2.bin", "folder.bin/b_3.bin"})
    folder.write(name, "");
  std::filesystem::create_symlink("nowhere", folder.path() / "link.bin");
  using Names = std::vector<std::string>;
  CHECK(names_matching(folder.path(), "*.bin") ==
        Names{"B_1.bin", "a_1.bin", "b_10.bin", "b_9.bin", "link.bin", "odd[1].bin"});
  CHECK(names_matching(folder.path(), "b_?.bin") == Names{"b_9.bin"});
  CHECK(names_matching(folder.path(), "?_1*") ==
        Names{"B_1.bin", "a_1.bin", "b_1.bin.tmp", "b_1.txt", "b_10.bin"});
  CHECK(names_matching(folder.path(), "[ab]_1.bin") == Names{"a_1.bin"});
  CHECK(names_matching(folder.path(), "odd\\[1].bin") == Names{"odd[1].bin"});
  CHECK(names_matching(folder.path(), ".b*") == Names{".b_1.bin"});
  CHECK(names_matching(folder.path(), "a_1.bin") == Names{"a_1.bin"});
  CHECK(names_matching(folder.path(), "a_1").empty());
  CHECK(names_matching(folder.path(), "inner/b_2.bin").empty());
  CHECK(names_matching(folder.path(), "").empty());
}
