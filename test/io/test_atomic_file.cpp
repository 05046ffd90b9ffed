#include <sys/stat.h>

#include "catch.h"
#include "io/file.h"
#include "spec/error.h"
#include "spec/hash.h"
#include "temp_folder.h"

using namespace sdp;
namespace fs = std::filesystem;

TEST_CASE("a file is replaced only by commit", "[atomic_file]") {
  const TempFolder folder;
  write_file_atomically(folder / "file", "old");
  for (const bool commits : {false, true}) {
    AtomicFile file(folder / "file");
    file.write("new");
    file.write("er");
    CHECK(get(folder / "file") == "old");
    if (commits) file.commit();
  }
  CHECK(get(folder / "file") == "newer");
  CHECK(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("an existing file of the temporary name is replaced, not written to", "[atomic_file]") {
  const TempFolder folder;
  put(folder / "precious", "precious");
  fs::create_symlink(folder / "precious", folder / "file.tmp");
  write_file_atomically(folder / "file", "1");
  REQUIRE(mkfifo((folder / "file.tmp").c_str(), 0600) == 0);  // opening it would wait for a reader
  write_file_atomically(folder / "file", "2");
  CHECK(get(folder / "file") == "2");
  CHECK(fs::symlink_status(folder / "file").type() == fs::file_type::regular);
  fs::remove(folder / "file");
  fs::create_symlink(folder / "precious", folder / "file");
  write_file_atomically(folder / "file", "3");
  CHECK(get(folder / "file") == "3");
  CHECK(get(folder / "precious") == "precious");
}

TEST_CASE("input and output errors name the path, the reason and what to do", "[file]") {
  const TempFolder folder;
  const std::string missing = folder / "missing/file";
  const std::string full = message_of<DataError>([] {
    OutputFile file("/dev/full", OutputFile::Mode::kAppend);
    file.write("x");
    file.flush();
  });
  for (const auto& [message, path, reason, advice] :
       {std::tuple(message_of<DataError>([&] { write_file_atomically(missing, "x"); }), missing,
                   "No such file or directory", "Check that the path is right"),
        {full, "/dev/full", "No space left on device", "Free space"},
        {message_of<DataError>([&] { MappedFile file(folder.path()); }), folder.path(), "Is a directory", ""},
        {message_of<DataError>([&] { read_text(missing); }), missing, "No such file", ""},
        {message_of<DataError>([&] { digest_file(missing); }), missing, "No such file", ""}})
    CHECK_THAT(message, Catch::Contains(path) && Catch::Contains(reason) && Catch::Contains(advice));
}

TEST_CASE("output is complete and in order for pieces of any size, and so is its digest", "[file]") {
  constexpr size_t kMega = 1 << 20;
  const TempFolder folder;
  std::string expected;
  for (const auto mode : {OutputFile::Mode::kTruncate, OutputFile::Mode::kAppend}) {
    OutputFile file(folder / "file", mode);
    for (const size_t size : {size_t{1}, kMega, size_t{7}, kMega - 3, 3 * kMega}) {
      const std::string piece(size, static_cast<char>('a' + size % 26));
      file.write(piece);
      expected += piece;
    }
    mode == OutputFile::Mode::kTruncate ? file.sync() : file.flush();
  }
  CHECK(get(folder / "file") == expected);
  CHECK(digest_file(folder / "file") ==
        FileDigest{static_cast<int64_t>(expected.size()), xxh3_128(expected)});
  CHECK(xxh3_128(expected) != xxh3_128(expected + "x"));
  // From the reference implementation's test vectors (seed 0).
  CHECK(xxh3_128("") == "99aa06d3014798d86001c324468d497f");
  CHECK(xxh3_128("a") == "a96faf705af16834e6c632b61e964e1f");
}
