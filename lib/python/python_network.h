#pragma once

// Networks in Python (python/sdp_train/structure.py) as models of this program. Python is called with the
// interpreter's lock, which is not held otherwise.

#include <memory>

#include "model/own_spec.h"

namespace pybind11 {
class object;
class module_;
}  // namespace pybind11

namespace sdp {

/// The network of a `structure`, a sdp_train.structure.Structure, for set_own_network. With the lock.
std::shared_ptr<const OwnNetwork> python_network(const pybind11::object& structure);

/// Adds to the extension module what networks in Python get from this program: the class Pass. With the lock.
void add_pass(pybind11::module_& module);

}  // namespace sdp
