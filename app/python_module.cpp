// The extension _sdp_train: the program within a Python that has a network (python/sdp_train).

#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <string>
#include <vector>

#include "command_line.h"
#include "cost/recorder.h"
#include "python/python_network.h"

namespace py = pybind11;

namespace {

/// Runs a command with the network, and returns the program's exit code.
int run(const std::vector<std::string>& arguments, const std::vector<std::string>& self,
        const py::object& structure) {
  sdp::set_own_network(sdp::python_network(structure));
  const int code = [&] {
    const py::gil_scoped_release released;
    return sdp::run_command_line(arguments, self);
  }();
  sdp::set_own_network(nullptr);
  return code;
}

}  // namespace

PYBIND11_MODULE(_sdp_train, module) {
  module.attr("torch_version") = TORCH_VERSION;
  module.def("run", &run);
  module.def("add_meta_kernels", &sdp::add_meta_kernels);
  sdp::add_pass(module);
}
