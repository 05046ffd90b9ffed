#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "catch.h"
#include "io/file.h"
#include "io/safetensors.h"
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

TEST_CASE("input and output errors name the path and the reason", "[file]") {
  const TempFolder folder;
  const std::string missing = folder / "missing/file";
  const std::string full = message_of<DataError>([] {
    OutputFile file("/dev/full", OutputFile::Mode::kAppend);
    file.write("x");
    file.flush();
  });
  for (const auto& [message, path, reason] :
       {std::tuple(message_of<DataError>([&] { write_file_atomically(missing, "x"); }), missing,
                   "No such file"),
        {full, "/dev/full", "No space left on device"},
        {message_of<DataError>([&] { MappedFile file(folder.path()); }), folder.path(), "Is a directory"},
        {message_of<DataError>([&] { read_text(missing); }), missing, "No such file"}})
    CHECK_THAT(message, Catch::Contains(path) && Catch::Contains(reason));
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

namespace {

std::string with_length(const std::string& header) {
  std::string text;
  for (int i = 0; i < 8; ++i)
    text += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return text + header;
}

const std::vector<std::byte> kZeros(4096);

std::span<const std::byte> zeros(size_t bytes) {
  return std::span(kZeros).first(bytes);
}

}  // namespace

TEST_CASE("the written bytes follow the format", "[safetensors]") {
  // Values of every type, shape and name, and their alignment: safetensors_interop.py.
  const TempFolder folder;
  SafetensorsWriter writer(folder / "f", {{"a", DType::kI32, {2}}, {"b", DType::kU8, {}}}, {{"k", "v"}});
  writer.write(std::as_bytes(std::span("\x01\0\0\0\xfe\xff\xff\xff", 8)));
  writer.write(std::as_bytes(std::span("\x07", 1)));
  const FileDigest digest = writer.finish();
  std::string header = R"({"__metadata__":{"k":"v"},"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string expected = with_length(header) + std::string("\x01\0\0\0\xfe\xff\xff\xff\x07", 9);
  CHECK(get(folder / "f") == expected);
  CHECK(digest == FileDigest{static_cast<int64_t>(expected.size()), xxh3_128(expected)});
  CHECK(SafetensorsFile(folder / "f").find("other") == nullptr);
}

TEST_CASE("the writer refuses calls that would break the file", "[safetensors]") {
  const TempFolder folder;
  {
    SafetensorsWriter writer(folder / "f", {{"a", DType::kF32, {2}}, {"b", DType::kF32, {2}}});
    writer.write(zeros(4));
    CHECK_THROWS_WITH(writer.write(zeros(8)), Catch::Contains("tensor a"));
    writer.write(zeros(4));
    writer.write(zeros(4));
    CHECK_THROWS_WITH(writer.finish(), Catch::Contains("tensor b"));
  }
  CHECK_FALSE(std::filesystem::exists(folder / "f"));  // unfinished
  SafetensorsWriter writer(folder / "f", {});
  writer.finish();

  // Entries that no reader would accept; the file on disk stays.
  const std::string before = get(folder / "f");
  for (const std::vector<TensorEntry>& entries :
       {std::vector<TensorEntry>{{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}},
        {{"__metadata__", DType::kF32, {1}}},
        {{"a", DType::kU8, {1}}, {"b", DType::kF32, {1}}}})
    CHECK_THROWS_AS(SafetensorsWriter(folder / "f", entries), std::logic_error);
  CHECK(get(folder / "f") == before);
}

TEST_CASE("a full disk is reported, and no file is left, wherever in the file it is full", "[safetensors]") {
  CHECK_THROWS_AS(SafetensorsWriter("/dev/full", {{"a", DType::kF32, {1}}}), DataError);
  CHECK(std::filesystem::exists("/dev/full"));
  const TempFolder folder;
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);  // writing fails with EFBIG instead
  rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  for (const rlim_t most : {0, 3, 20, 2000}) {
    const rlimit small{.rlim_cur = most, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = message_of<DataError>([&] {
      SafetensorsWriter writer(folder / "f", {{"a", DType::kU8, {4096}}});
      writer.write(zeros(4096));
      writer.finish();
    });
    setrlimit(RLIMIT_FSIZE, &limit);
    INFO(most);
    CHECK(contains(message, (folder / "f").string()));
    CHECK_FALSE(std::filesystem::exists(folder / "f"));
  }
  std::signal(SIGXFSZ, previous);
}

TEST_CASE("damaged files are refused, naming the file, the tensor and the damage", "[safetensors]") {
  // Which files are refused: safetensors_interop.py.
  const TempFolder folder;
  const auto refusal = [&](const std::string& type, size_t header_bytes = 0) {
    std::string header = R"({"a":{"dtype":)" + type + R"(,"shape":[1],"data_offsets":[0,1]}})";
    if (header_bytes > 0) header.resize(header_bytes, ' ');
    put(folder / "f", with_length(header) + "1");
    return message_of<DataError>([&] { SafetensorsFile(folder / "f"); });
  };
  CHECK(refusal("\"U8\"").empty());
  CHECK(refusal("\"U8\"", 0x088b1f).empty());  // a length like gzip's magic number
  CHECK_THAT(refusal("\"F32\""), Catch::Contains((folder / "f").string()) && Catch::Contains("\"a\""));
  CHECK_THAT(refusal("8"), Catch::Contains("damaged"));
  for (const char* type : {"\"F8_E4M3\"", "\"U16\""})  // valid, but unknown here
    CHECK_THAT(refusal(type), Catch::Contains(type) && !Catch::Contains("damaged"));
}
