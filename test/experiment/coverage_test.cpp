#include "experiment/experiment_spec.h"
#include "spec_errors.h"

namespace sdp {
namespace {

int64_t owners(const std::string& text, int64_t workers) {
  return owners_of(Coverage{.text = text}, workers);
}

std::string owners_error(const std::string& text, int64_t workers) {
  return message_of<UsageError>([&] { owners(text, workers); });
}

TEST_CASE("coverage times workers is the number of owners of a unit") {
  CHECK(owners("1", 7) == 7);
  CHECK(owners("4/8", 4) == 2);
  CHECK(owners("8/8", 3) == 3);
  CHECK(owners("7/8", 16) == 14);
  CHECK(owners("0.375", 8) == 3);
  CHECK(owners("5e-1", 2) == 1);
  for (int64_t n = 1; n <= 64; ++n)
    for (int64_t p = 1; p <= n; ++p)
      CHECK(owners(std::to_string(p) + "/" + std::to_string(n), n) == p);
  // Without an overflow.
  CHECK(owners("4000000000000000000/8000000000000000000", 8) == 4);
  CHECK(owners("3/4", int64_t{1} << 62) == 3 * (int64_t{1} << 60));
  // A decimal may be off by 1e-6.
  CHECK(owners("0.333333", 3) == 1);
  CHECK(owners("0.6666667", 3) == 2);
  CHECK(value_of(Coverage{.text = "3/8"}) == 0.375);
  CHECK(value_of(Coverage{.text = "0.25"}) == 0.25);
  CHECK(value_of(Coverage{}) == 1);
}

TEST_CASE("a coverage without a whole number of owners is refused, naming its neighbors") {
  CHECK(contains(owners_error("0.4", 8), "8 workers: 3/8, 4/8"));
  CHECK(contains(owners_error("4/8", 5), "5 workers: 2/5, 3/5"));
  CHECK(contains(owners_error("1/9", 8), "workers: 1/8"));
  CHECK_FALSE(contains(owners_error("1/9", 8), "0/8"));
  CHECK(contains(owners_error("0.99", 8), "7/8, 8/8"));
  CHECK(contains(owners_error("0.33333", 3), "1/3"));
  CHECK(contains(owners_error("333333333333/1000000000000", 3), "1/3"));  // a fraction is taken exactly
}

TEST_CASE("invalid coverages are refused") {
  for (const char* text : {"", "0", "-0.5", "1.1", "0/8", "9/8", "-4/8", "4/", "/8", "4/8/2", "a", "nan",
                           "inf", "4 / 8", "50%", "0.5x", "99999999999999999999/99999999999999999999"}) {
    INFO(text);
    CHECK(contains(owners_error(text, 8), "expected a coverage above 0 and at most 1"));
  }
}

}  // namespace
}  // namespace sdp
