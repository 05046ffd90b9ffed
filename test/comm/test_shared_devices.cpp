#include "comm/shared_devices.h"

#include <cstdlib>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "catch.h"
#include "helper_process.h"

using Catch::Matchers::Contains;

namespace sdp {
namespace {

constexpr const char* kFirst = "0000:3b:00.0";
constexpr const char* kSecond = "0000:5e:00.0";

}  // namespace

TEST_CASE("ranks on different devices are not refused, nor is the same slot on another host") {
  CHECK(refuse_shared_devices({}).empty());
  CHECK(refuse_shared_devices({{"a 1", kFirst}}).empty());
  CHECK(
      refuse_shared_devices({{"a 1", kFirst}, {"a 1", kSecond}, {"b 2", kFirst}, {"b 2", kSecond}}).empty());
  // Hosts with the same name that were booted at different times; processes that NCCL_HOSTID distinguishes.
  CHECK(refuse_shared_devices({{"a 1", kFirst}, {"a 2", kFirst}}).empty());
  CHECK(refuse_shared_devices({{"0", kFirst}, {"1", kFirst}, {"2", kFirst}}).empty());
}

TEST_CASE("ranks that share a device are named with it and with advice") {
  const std::string one =
      refuse_shared_devices({{"a 1", kFirst}, {"b 2", kFirst}, {"a 1", kFirst}, {"a 1", kSecond}});
  CHECK_THAT(one, Contains("ranks 0 and 2 on 0000:3b:00.0 of a") && !Contains("of b") && !Contains(kSecond) &&
                      Contains("one process per GPU") && Contains("train.backend to gloo"));

  const std::string two =
      refuse_shared_devices({{"a 1", kFirst}, {"a 1", kSecond}, {"a 1", kFirst}, {"a 1", kSecond}});
  CHECK_THAT(two, Contains("ranks 0 and 2 on 0000:3b:00.0 of a; ranks 1 and 3 on 0000:5e:00.0 of a"));

  std::vector<DevicePlace> many;
  for (int rank = 0; rank < 20; ++rank)
    many.push_back({"host" + std::to_string(rank / 2), kFirst});
  const std::string text = refuse_shared_devices(many);
  CHECK_THAT(text, Contains("ranks 6 and 7 on 0000:3b:00.0 of host3;") && Contains("6 more GPUs") &&
                       !Contains("host4"));
}

TEST_CASE("every rank learns the places of all ranks") {
  c10d::HashStore store;
  const std::vector<DevicePlace> places = {{"host 0", kSecond}, {"host 1", kFirst}, {"host 2", kSecond}};
  const auto seen = test::in_parallel(
      3, [&](int rank) { return gather_places(store, rank, 3, places[static_cast<size_t>(rank)]); });
  for (const std::vector<DevicePlace>& of_rank : seen)
    CHECK((of_rank == places));
}

TEST_CASE("NCCL_HOSTID replaces the host's name") {
  const std::string host = nccl_host();
  CHECK(host == nccl_host());
  setenv("NCCL_HOSTID", "seven", /*overwrite=*/1);
  CHECK(nccl_host() == "seven");
  unsetenv("NCCL_HOSTID");
  CHECK(nccl_host() == host);
}

}  // namespace sdp
