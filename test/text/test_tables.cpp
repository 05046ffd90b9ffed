#include <cmath>
#include <limits>

#include "catch.h"
#include "text/table.h"
#include "text/units.h"

using namespace sdp;

TEST_CASE("bytes in readable units", "[units]") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.00 KiB");
  CHECK(format_bytes(12 * 1024 + 345) == "12.3 KiB");
  CHECK(format_bytes(int64_t{1023} << 10) == "1023 KiB");
  CHECK(format_bytes((int64_t{1} << 20) - 1) == "1.00 MiB");
  CHECK(format_bytes((int64_t{5} << 30) / 4) == "1.25 GiB");
  CHECK(format_bytes(-(int64_t{1} << 40)) == "-1.00 TiB");
  CHECK(format_bytes(std::numeric_limits<int64_t>::max()) == "8192 PiB");
}

TEST_CASE("counts in readable units", "[units]") {
  CHECK(format_count(0) == "0");
  CHECK(format_count(7) == "7");
  CHECK(format_count(999) == "999");
  CHECK(format_count(12.34) == "12.3");
  CHECK(format_count(0.5) == "0.50");
  CHECK(format_count(1000) == "1.00 k");
  CHECK(format_count(1249999) == "1.25 M");
  CHECK(format_count(9.996e6) == "10.0 M");
  CHECK(format_count(99.96e6) == "100 M");
  CHECK(format_count(999.6e6) == "1.00 G");
  CHECK(format_count(-1500) == "-1.50 k");
  CHECK(format_count(std::nan("")) == "nan");
}

TEST_CASE("percentages", "[units]") {
  CHECK(format_percent(0) == "0.00 %");
  CHECK(format_percent(0.12346) == "12.35 %");
  CHECK(format_percent(1) == "100.00 %");
  CHECK(format_percent(-0.5) == "-50.00 %");
}

TEST_CASE("durations in readable units", "[units]") {
  CHECK(format_duration(0) == "0.0 s");
  CHECK(format_duration(12.34) == "12.3 s");
  CHECK(format_duration(59.94) == "59.9 s");
  CHECK(format_duration(59.96) == "1m 00s");
  CHECK(format_duration(184) == "3m 04s");
  CHECK(format_duration(3599.4) == "59m 59s");
  CHECK(format_duration(3599.6) == "1h 00m");
  CHECK(format_duration(3720) == "1h 02m");
  CHECK(format_duration(100 * 3600) == "100h 00m");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(std::numeric_limits<double>::infinity()) == "?");
}

TEST_CASE("lists of whole numbers", "[units]") {
  CHECK(format_numbers({}) == "");
  CHECK(format_numbers({3}) == "3");
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
}

TEST_CASE("a table without rows is its header", "[table]") {
  CHECK(TextTable({"a", "bc"}).str() == "a  bc\n-  --\n");
}
