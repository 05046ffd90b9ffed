#include "spec/text.h"

#include <nlohmann/json.hpp>
#include <random>

#include "experiment/experiment_spec.h"
#include "spec_errors.h"

namespace sdp {
namespace {

// Names that are near: validate_test.cpp. Limits and exact numbers: print_test.cpp.
TEST_CASE("numbers are printed short, and in a form that every YAML version reads") {
  CHECK(shortest_decimal(0.1) == "0.1");
  CHECK(shortest_decimal(0) == "0");
  CHECK(shortest_decimal(5e-4) == "5.0e-04");
}

TEST_CASE("what lies in place of a file is known by its beginning, and nothing else is taken for it") {
  for (const auto& [text, says] :
       {std::pair{std::string("version https://git-lfs.github.com/spec/v1\noid sha256:00\n"), "git lfs pull"},
        {"<!doctype html>", "HTML page"},
        {"\xEF\xBB\xBF <HTML lang='en'>", "HTML page"},
        {"\n\t<html>", "HTML page"},
        {std::string("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03", 10), "gunzip"}})
    CHECK(contains(wrong_content(text), says));
  for (const char* other :
       {"", " ", "\x1f\x8b", "version: 1", "html", "<?xml version='1.0'?>", "{}", "name: a"})
    CHECK(wrong_content(other).empty());
}

TEST_CASE("UTF-8 is what nlohmann::json takes for it") {
  std::mt19937 random(7);
  // Bytes at the borders of UTF-8's ranges, so that whole characters occur.
  const std::string bytes = "a\x7f\x80\x8f\x90\x9f\xa0\xbf\xc1\xc2\xdf\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5\xff";
  int valid = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string text;
    for (size_t length = random() % 5; text.size() < length;)
      text += bytes[random() % bytes.size()];
    bool expected = true;
    try {
      static_cast<void>(nlohmann::json(text).dump());
    } catch (const nlohmann::json::type_error&) {
      expected = false;
    }
    valid += expected ? 1 : 0;
    REQUIRE(!invalid_utf8_at(text).has_value() == expected);
  }
  CHECK(valid > 1000);
  CHECK(invalid_utf8_at("ab\xc3") == 2U);
}

}  // namespace
}  // namespace sdp
