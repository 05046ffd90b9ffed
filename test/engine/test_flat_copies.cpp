#include <ATen/ATen.h>

#include "catch.h"
#include "engine/flat_copies.h"
#include "test_device.h"

namespace sdp {

TEST_CASE("copies between different pairs of types are separate launches, with the values of plain copies") {
  const std::vector<at::ScalarType> types = {at::kFloat, at::kBFloat16, at::kDouble};
  const at::TensorOptions doubles = at::TensorOptions(at::kDouble).device(test_device());
  FlatCopies copies;
  CHECK(copies.launches() == 0);
  copies.run();
  std::vector<std::pair<at::Tensor, at::Tensor>> expected;
  for (int64_t size = 1; size <= 3; ++size)
    for (const at::ScalarType to : types)
      for (const at::ScalarType from : types) {
        const at::Tensor source = at::randn({5, size}, doubles).to(from);
        const at::Tensor target = at::zeros({5, size + 1}, doubles.dtype(to)).narrow(1, 0, size);  // strided
        copies.add(target, source);
        expected.emplace_back(target, source.to(to));
      }
  CHECK(copies.launches() == types.size() * types.size());
  copies.run();
  for (const auto& [copied, plain] : expected)
    CHECK(at::equal(copied, plain));
}

}  // namespace sdp
