#include <sys/resource.h>

#include <csignal>

#include "catch.h"
#include "io/safetensors.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

template <class Value>
std::span<const std::byte> bytes_of(const std::vector<Value>& values) {
  return std::as_bytes(std::span(values));
}

std::string little_endian_length(uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i)
    text += static_cast<char>(length >> (8 * i) & 0xff);
  return text;
}

}  // namespace

TEST_CASE("the written bytes follow the format", "[safetensors]") {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "f", {{"a", DType::kI32, {2}}, {"b", DType::kU8, {}}}, {{"k", "v"}});
  const std::vector<int32_t> values = {1, -2};
  writer.write(bytes_of(values));
  writer.write(std::as_bytes(std::span("\x07", 1)));
  const FileDigest digest = writer.finish();

  std::string header = R"({"__metadata__":{"k":"v"},"a":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},)"
                       R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string expected =
      little_endian_length(header.size()) + header + std::string("\x01\0\0\0\xfe\xff\xff\xff\x07", 9);
  CHECK(get(folder / "f") == expected);
  CHECK(digest.bytes == static_cast<int64_t>(expected.size()));
  CHECK(digest.xxh3_128 == xxh3_128(expected));
  CHECK(digest == digest_file(folder / "f"));
}

TEST_CASE("tensors are sorted so that each is aligned, and found also after a move", "[safetensors]") {
  // Values of every type, shape and name: safetensors_interop.py.
  const TempFolder folder;
  std::vector<TensorEntry> entries = {{"bool", DType::kBool, {3}}, {"u8", DType::kU8, {1}},
                                      {"f16", DType::kF16, {2}},   {"i32", DType::kI32, {5}},
                                      {"i64", DType::kI64, {}},    {"none", DType::kF64, {0, 7}}};
  sort_for_writing(entries);
  CHECK(entries.front().name == "i64");
  CHECK(entries.back().name == "u8");
  SafetensorsWriter writer(folder / "f", entries);
  for (const TensorEntry& entry : entries)
    if (entry.bytes() > 0) writer.write(std::vector<std::byte>(static_cast<size_t>(entry.bytes())));
  writer.finish();
  const SafetensorsFile file = SafetensorsFile(folder / "f");
  for (const TensorView& view : file.entries())
    CHECK(reinterpret_cast<uintptr_t>(view.data.data()) %
              static_cast<size_t>(element_bytes(view.entry.dtype)) ==
          0);
  CHECK(file.find("other") == nullptr);
}

TEST_CASE("the writer refuses calls that would break the file", "[safetensors]") {
  const TempFolder folder;
  const std::vector<float> values(3);
  const auto piece = [&](size_t floats) { return bytes_of(values).first(4 * floats); };
  const std::vector<TensorEntry> two = {{"a", DType::kF32, {2}}, {"b", DType::kF32, {2}}};

  SECTION("a piece that reaches into the next tensor, and an unfinished file, which is then removed") {
    {
      SafetensorsWriter writer(folder / "f", two);
      writer.write(piece(1));
      CHECK_THROWS_WITH(writer.write(piece(2)), Catch::Contains("tensor a"));
      writer.write(piece(1));
      writer.write(piece(1));
      CHECK_THROWS_WITH(writer.finish(), Catch::Contains("tensor b"));
    }
    CHECK_FALSE(std::filesystem::exists(folder / "f"));
  }
  SECTION("data after the end, and a second end") {
    SafetensorsWriter writer(folder / "f", {});
    CHECK_THROWS_AS(writer.write(piece(1)), std::logic_error);
    writer.finish();
    CHECK_THROWS_AS(writer.finish(), std::logic_error);
  }
  SECTION("entries that no reader would accept; the file on disk stays") {
    put(folder / "f", "old");
    const auto write = [&](std::vector<TensorEntry> entries) {
      SafetensorsWriter(folder / "f", std::move(entries));
    };
    CHECK_THROWS_AS(write({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}), std::logic_error);
    CHECK_THROWS_AS(write({{"__metadata__", DType::kF32, {1}}}), std::logic_error);
    CHECK_THROWS_AS(write({{"a", DType::kU8, {1}}, {"b", DType::kF32, {1}}}), std::logic_error);
    CHECK(get(folder / "f") == "old");
    CHECK_THROWS_AS(write({{"\xff", DType::kF32, {1}}}), std::logic_error);
  }
}

TEST_CASE("a full disk is reported, and no file is left, wherever in the file it is full", "[safetensors]") {
  CHECK_THROWS_AS(SafetensorsWriter("/dev/full", {{"a", DType::kF32, {1}}}), DataError);
  CHECK(std::filesystem::exists("/dev/full"));
  const TempFolder folder;
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);  // writing fails with EFBIG instead
  rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  for (const rlim_t most : {0, 3, 20, 2000}) {
    rlimit small = limit;
    small.rlim_cur = most;
    setrlimit(RLIMIT_FSIZE, &small);
    const std::string message = message_of<DataError>([&] {
      SafetensorsWriter writer(folder / "f", {{"a", DType::kU8, {4096}}});
      writer.write(bytes_of(std::vector<uint8_t>(4096)));
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
  const auto refusal = [&](const std::string& header, const std::string& data) {
    put(folder / "f", little_endian_length(header.size()) + header + data);
    return message_of<DataError>([&] { SafetensorsFile(folder / "f"); });
  };
  const auto with_type = [&](const std::string& type) {
    return refusal(R"({"a":{"dtype":)" + type + R"(,"shape":[1],"data_offsets":[0,1]}})", "1");
  };
  CHECK(with_type("\"U8\"").empty());
  // A header as long as gzip's magic number says is no gzip.
  std::string long_header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  long_header.resize(0x088b1f, ' ');
  CHECK(refusal(long_header, "1").empty());
  CHECK_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "123"),
             Catch::Contains((folder / "f").string()) && Catch::Contains("\"a\""));
  CHECK_THAT(with_type("8"), Catch::Contains("damaged"));
  for (const char* type :
       {"\"F8_E4M3\"", "\"F4\"", "\"U16\"", "\"I8\"", "\"C64\""})  // valid, but unknown here
    CHECK_THAT(with_type(type),
               Catch::Contains(std::string(type) + " is not one of F64") && !Catch::Contains("damaged"));
}
