#pragma once

// The device that tests compute on: SDP_TEST_DEVICE, cpu (where it is unset) or cuda. Every test that makes
// sense on a device asks here; those have the ctest label `device`.

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace sdp {

/// Throws, so that the test fails, where the name is none of the two or no GPU is visible. On CUDA kernels
/// are deterministic where LibTorch has such, so that what has to be equal to the bit on a CPU has to be
/// there too, and fp32 is fp32 (as after prepare_device() in device/device.h).
inline at::Device test_device() {
  const char* const name = std::getenv("SDP_TEST_DEVICE");
  if (!name || name == std::string("cpu")) return at::kCPU;
  if (name != std::string("cuda"))
    throw std::runtime_error("SDP_TEST_DEVICE: found '" + std::string(name) + "', expected cpu or cuda");
  if (!at::hasCUDA()) throw std::runtime_error("SDP_TEST_DEVICE: cuda, but no CUDA device is visible");
  static const bool is_prepared = [] {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // read when cuBLAS begins
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
