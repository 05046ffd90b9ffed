#include <sys/resource.h>

#include <csignal>

#include "catch.h"
#include "io/safetensors.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;

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
  CHECK_THROWS_AS(writer.write(zeros(4)), std::logic_error);
  writer.finish();
  CHECK_THROWS_AS(writer.finish(), std::logic_error);

  // Entries that no reader would accept; the file on disk stays, unless its header does not fit.
  const std::string before = get(folder / "f");
  for (const std::vector<TensorEntry>& entries :
       {std::vector<TensorEntry>{{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}},
        {{"__metadata__", DType::kF32, {1}}},
        {{"a", DType::kU8, {1}}, {"b", DType::kF32, {1}}}})
    CHECK_THROWS_AS(SafetensorsWriter(folder / "f", entries), std::logic_error);
  CHECK(get(folder / "f") == before);
  CHECK_THROWS_AS(SafetensorsWriter(folder / "f", {{"\xff", DType::kF32, {1}}}), std::logic_error);
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
  for (const char* type :
       {"\"F8_E4M3\"", "\"F4\"", "\"U16\"", "\"I8\"", "\"C64\""})  // valid, but unknown here
    CHECK_THAT(refusal(type),
               Catch::Contains(std::string(type) + " is not one of F64") && !Catch::Contains("damaged"));
}
