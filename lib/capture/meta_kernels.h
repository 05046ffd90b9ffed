#pragma once

namespace sdp {

/// Adds to LibTorch what its "meta" device lacks for the models: for each operator, the sizes of the results
/// and nothing else. (PyTorch has these in Python, in torch/_meta_registrations.py.) Adds them once.
void add_meta_kernels();

}  // namespace sdp
