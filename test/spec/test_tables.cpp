#include <cmath>

#include "catch.h"
#include "spec/table.h"
#include "spec/units.h"

using namespace sdp;

using Size = std::pair<int64_t, const char*>;
using Row = std::pair<double, const char*>;

TEST_CASE("numbers in readable units", "[units]") {
  for (const auto& [bytes, text] :
       {Size{0, "0 B"}, Size{1023, "1023 B"}, Size{1024, "1.00 KiB"}, Size{12 * 1024 + 345, "12.3 KiB"},
        Size{(int64_t{1} << 20) - 1, "1.00 MiB"}, Size{-(int64_t{1} << 40), "-1.00 TiB"},
        Size{INT64_MAX, "8192 PiB"}})
    CHECK(format_bytes(bytes) == text);
  for (const auto& [count, text] : {Row{0, "0"}, Row{999, "999"}, Row{12.34, "12.3"}, Row{0.5, "0.50"},
                                    Row{1000, "1.00 k"}, Row{1249999, "1.25 M"}, Row{9.996e6, "10.0 M"},
                                    Row{99.96e6, "100 M"}, Row{999.6e6, "1.00 G"}, Row{-1500, "-1.50 k"}})
    CHECK(format_count(count) == text);
  CHECK(format_count(std::nan("")) == "nan");
  CHECK(format_percent(0.12346) == "12.35 %");
  CHECK(format_percent(-0.5) == "-50.00 %");
  for (const auto& [seconds, text] : {Row{0, "0.0 s"}, Row{59.94, "59.9 s"}, Row{59.96, "1m 00s"},
                                      Row{184, "3m 04s"}, Row{3599.4, "59m 59s"}, Row{3599.6, "1h 00m"},
                                      Row{100 * 3600, "100h 00m"}, Row{-1, "?"}, Row{INFINITY, "?"}})
    CHECK(format_duration(seconds) == text);
}

TEST_CASE("lists of whole numbers", "[units]") {
  CHECK(format_numbers({}) == "");
  CHECK(format_numbers({0, 1}) == "0 1");
  CHECK(format_numbers({0, 1, 2}) == "0-2");
  CHECK(format_numbers({0, 4, 5, 6, 7, 9, 10, 12, 13, 14}) == "0 4-7 9 10 12-14");
  const std::vector<int> even = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18};
  CHECK(format_numbers(even, 24) == "0 2 4 6 8 10 12 14 16 18");
  CHECK(format_numbers(even, 23) == "0 2 4 6 ... (10 in all)");
}

TEST_CASE("columns are aligned, with numbers to the right", "[table]") {
  TextTable table({"unit", "λ2", "memory", "note"});
  table.add_row({"größe", "0.5", "12.3 MiB", "3 of 4"});
  table.add_row({"b", "-", "9 B", ""});
  table.add_row({"c", "-1", "", "x"});
  CHECK(table.str() ==
        "unit    λ2    memory  note\n"
        "-----  ---  --------  ------\n"
        "größe  0.5  12.3 MiB  3 of 4\n"
        "b        -       9 B\n"
        "c       -1            x\n");
  CHECK_THROWS_AS(table.add_row({"too", "few"}), std::logic_error);
  CHECK(TextTable({"a", "bc"}).str() == "a  bc\n-  --\n");
}
