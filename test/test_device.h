#pragma once

// The device that tests compute on: SDP_TEST_DEVICE, which is cpu (the default) or cuda. Every test that is
// meaningful on a device uses this function; these tests have the ctest label `device`.

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace sdp {

/// Throws, so that the test fails, if the name is neither of the two or no GPU is visible. On CUDA, kernels
/// are deterministic if LibTorch has deterministic ones, so that results that are bit-identical on a CPU are
/// so there, too, and fp32 is true fp32 (as after prepare_device() in engine/device.h).
inline at::Device test_device() {
  const char* const name = std::getenv("SDP_TEST_DEVICE");
  if (!name || name == std::string("cpu")) return at::kCPU;
  if (name != std::string("cuda"))
    throw std::runtime_error("SDP_TEST_DEVICE: found '" + std::string(name) + "', expected cpu or cuda");
  if (!at::hasCUDA()) throw std::runtime_error("SDP_TEST_DEVICE: cuda, but no CUDA device is visible");
  static const bool is_prepared = [] {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // read when cuBLAS starts
    at::Context& context = at::globalContext();
    context.lazyInitDevice(at::kCUDA);
    context.setDeterministicAlgorithms(true, /*warn_only=*/true);
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
    context.setAllowTF32CuDNN(false);
    context.setSDPUseCuDNN(false);
    context.setSDPUseMemEfficient(false);
    return true;
  }();
  return is_prepared ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

/// A random-number generator of the test's device.
inline at::Generator test_generator(uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(test_device()).clone();
  generator.set_current_seed(seed);
  return generator;
}

}  // namespace sdp
