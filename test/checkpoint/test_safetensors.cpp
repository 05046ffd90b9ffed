#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <limits>

#include "catch.h"
#include "checkpoint/files/safetensors.h"
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

TEST_CASE("tensors of every type, shape and name are read back", "[safetensors]") {
  const TempFolder folder;
  std::vector<TensorEntry> entries = {{"bool", DType::kBool, {3}},   {"u8", DType::kU8, {1}},
                                      {"f16", DType::kF16, {2}},     {"bf16", DType::kBF16, {1, 1}},
                                      {"i32", DType::kI32, {5}},     {"f32", DType::kF32, {2, 3}},
                                      {"i64", DType::kI64, {}},      {"f64", DType::kF64, {4, 1}},
                                      {"none", DType::kF64, {0, 7}}, {"größe \"λ\" \n", DType::kF32, {1}},
                                      {"", DType::kF32, {1}}};
  sort_for_writing(entries);
  CHECK(entries.front().name == "i64");
  CHECK(entries.back().name == "u8");

  SafetensorsWriter writer(folder / "f", entries);
  std::vector<std::vector<std::byte>> data;
  for (const TensorEntry& entry : entries) {
    data.emplace_back(static_cast<size_t>(entry.bytes()), static_cast<std::byte>(data.size() + 1));
    for (const std::byte byte : data.back())
      writer.write(std::span(&byte, 1));
  }
  writer.finish();

  const SafetensorsFile opened(folder / "f");
  SafetensorsFile file = SafetensorsFile(folder / "f");  // also after a move
  REQUIRE(file.entries().size() == entries.size());
  CHECK(file.metadata().empty());
  for (size_t i = 0; i < entries.size(); ++i) {
    const TensorView* view = file.find(entries[i].name);
    REQUIRE(view != nullptr);
    CHECK(view->entry == entries[i]);
    CHECK(std::vector(view->data.begin(), view->data.end()) == data[i]);
    CHECK(reinterpret_cast<uintptr_t>(view->data.data()) %
              static_cast<size_t>(element_bytes(view->entry.dtype)) ==
          0);
  }
  CHECK(file.find("other") == nullptr);
}

TEST_CASE("sizes of tensors", "[safetensors]") {
  CHECK(TensorEntry{"x", DType::kBF16, {3, 5}}.bytes() == 30);
  CHECK(TensorEntry{"x", DType::kF64, {}}.bytes() == 8);
  CHECK(TensorEntry{"x", DType::kF64, {0, 5}}.bytes() == 0);
  CHECK(tensor_bytes(DType::kU8, std::vector<int64_t>{std::numeric_limits<int64_t>::max()}).has_value());
  CHECK_FALSE(
      tensor_bytes(DType::kF16, std::vector<int64_t>{std::numeric_limits<int64_t>::max()}).has_value());
  CHECK_FALSE(tensor_bytes(DType::kU8, std::vector<int64_t>{-1}).has_value());
  CHECK_THROWS_AS((TensorEntry{"x", DType::kF64, {-1}}.bytes()), std::logic_error);
}

TEST_CASE("the writer refuses calls that would break the file", "[safetensors]") {
  const TempFolder folder;
  const std::vector<float> values(3);
  const auto piece = [&](size_t floats) { return bytes_of(values).first(4 * floats); };
  const std::vector<TensorEntry> two = {{"a", DType::kF32, {2}}, {"b", DType::kF32, {2}}};

  SECTION("a piece that reaches into the next tensor") {
    SafetensorsWriter writer(folder / "f", two);
    writer.write(piece(1));
    CHECK(contains(message_of<std::logic_error>([&] { writer.write(piece(2)); }), "tensor a"));
  }
  SECTION("an unfinished file, which is then removed") {
    {
      SafetensorsWriter writer(folder / "f", two);
      writer.write(piece(2));
      writer.write(piece(1));
      CHECK(contains(message_of<std::logic_error>([&] { writer.finish(); }), "tensor b"));
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

TEST_CASE("a full disk is reported with path, reason and advice", "[safetensors]") {
  const std::string message = message_of<DataError>([] {
    SafetensorsWriter("/dev/full", {{"a", DType::kF32, {1}}});
  });
  CHECK(contains(message, "/dev/full: No space left on device. Free space"));
  CHECK(std::filesystem::exists("/dev/full"));
}

TEST_CASE("no file is left if the disk is full before the end of the header, after it, or in the data",
          "[safetensors]") {
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
  const TempFolder folder;
  const auto refusal = [&](const std::string& header, const std::string& data) {
    put(folder / "f", little_endian_length(header.size()) + header + data);
    return message_of<DataError>([&] { SafetensorsFile(folder / "f"); });
  };
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  CHECK(refusal("{" + a + "}", "1234").empty());

  const std::string cut = refusal("{" + a + "}", "123");
  CHECK(contains(cut, (folder / "f").string()));
  CHECK(contains(cut, "\"a\""));
  CHECK(contains(cut, "holds 3 bytes"));
  CHECK(contains(refusal("{" + a + "}", "12345"), "1 bytes after the last tensor"));
  CHECK(contains(refusal("{" + a + "," + a + "}", "1234"), "\"a\" is repeated"));
  CHECK(contains(refusal("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", "12345"),
                 "overlap"));
  CHECK(contains(refusal("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}})", "123456"),
                 "hole"));
  CHECK(contains(refusal(R"({"a":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", "1"),
                 "\"F8\" is not one of F64"));
  for (const char* type : {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "U16", "I8", "C64"}) {
    const std::string unsupported =
        refusal(R"({"a":{"dtype":")" + std::string(type) + R"(","shape":[1],"data_offsets":[0,1]}})", "1");
    CHECK(contains(unsupported, "\"a\": dtype \"" + std::string(type) + "\" is not one of F64"));
    CHECK_FALSE(contains(unsupported, "damaged"));
  }
  CHECK(contains(refusal(R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", "1"), "damaged"));
  CHECK(contains(refusal(R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,4]}})", "1234"),
                 "needs 8 bytes"));
  CHECK(contains(refusal(R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", ""),
                 "too large"));
  CHECK(contains(refusal(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "1"), "\"shape\" is missing"));
  CHECK(contains(refusal(R"({"a":{"dtype":"U8","shape":[1e999],"data_offsets":[0,1]}})", "1"),
                 "no type can hold"));
  CHECK(contains(refusal("nonsense", ""), "does not start with '{'"));
}

TEST_CASE("a header as long as gzip's magic number says is no gzip", "[safetensors]") {
  const TempFolder folder;
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(0x088b1f, ' ');
  put(folder / "f", little_endian_length(header.size()) + header + "1");
  CHECK(SafetensorsFile(folder / "f").find("a"));
}

TEST_CASE("what a failed download left is named for what it is", "[safetensors]") {
  const TempFolder folder;
  const auto refusal = [&](const std::string& content) {
    put(folder / "f", content);
    return message_of<DataError>([&] { SafetensorsFile(folder / "f"); });
  };
  const std::string oid =
      "\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
  for (const char* version : {"https://git-lfs.github.com/spec/v1", "https://git-lfs.github.com/spec/v2"})
    CHECK(contains(refusal(std::string("version ") + version + oid), "Git LFS pointer"));
  for (const char* page :
       {"<!DOCTYPE html>\n<html lang=\"en\"><body>404</body></html>", "<html></html>",
        "\xEF\xBB\xBF\r\n <!doctype HTML PUBLIC \"-//W3C//DTD HTML 4.01//EN\">", "<HTML><HEAD>"})
    CHECK(contains(refusal(page), "HTML page"));
  // A header whose length begins with '<'.
  const std::string header = R"({"__metadata__":{"html":"<!doctype html"}})";
  put(folder / "f", little_endian_length('<') + header + std::string('<' - header.size(), ' '));
  CHECK(SafetensorsFile(folder / "f").entries().empty());
  for (const char* other : {"version 2", "<svg></svg>", "html", "Entry not found"})
    CHECK(!contains(refusal(other), "in place of the file"));
}
