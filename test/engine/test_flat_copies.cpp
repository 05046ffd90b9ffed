#include <ATen/ATen.h>

#include "catch.h"
#include "engine/flat_copies.h"
#include "test_device.h"

namespace sdp {

TEST_CASE(
    "contiguous copies are one launch per pair of types, strided ones one each, with the values of plain "
    "copies") {
  const std::vector<at::ScalarType> types = {at::kFloat, at::kBFloat16, at::kDouble};
  const at::TensorOptions doubles = at::TensorOptions(at::kDouble).device(test_device());
  FlatCopies copies;
  CHECK(copies.launches() == 0);
  copies.run();
  std::vector<std::pair<at::Tensor, at::Tensor>> expected;
  size_t strided = 0;
  for (int64_t rows : {1, 5})
    for (int64_t size = 1; size <= 3; ++size)
      for (const at::ScalarType to : types)
        for (const at::ScalarType from : types) {
          const at::Tensor source = at::randn({rows, size}, doubles).to(from);
          // Strided, but for a single row, whose stride is that of the wider tensor.
          const at::Tensor target = at::zeros({rows, size + 1}, doubles.dtype(to)).narrow(1, 0, size);
          strided += rows > 1;
          copies.add(target, source);
          expected.emplace_back(target, source.to(to));
        }
  CHECK(copies.launches() == types.size() * types.size() + strided);
  copies.run();
  for (const auto& [copied, plain] : expected)
    CHECK(at::equal(copied, plain));
}

}  // namespace sdp
