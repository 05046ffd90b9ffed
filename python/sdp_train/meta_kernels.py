"""Kernels of the meta device, with which plans record what a step allocates."""

from collections.abc import Callable

import torch
import torch._meta_registrations as of_python
from torch._decomp import global_decomposition_table
from torch._ops import OpOverload

KINDS = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


def use_kernels_of_the_program(add_meta_kernels: Callable[[], None]) -> None:
    """Gives every operator LibTorch's own meta kernel, as in the program without Python; or that of `add_meta_kernels`, the
    program's; or else Python's. Python replaces them all by its own, which compute with other operators what a CPU's or GPU's
    kernels compute at once: recordings would have tensors that no step has."""
    of_python._meta_lib_dont_use_me_use_register_meta._destroy()
    add_meta_kernels()
    table = {
        op: kernel
        for kind in ("pre_autograd", "post_autograd", "meta")
        for op, kernel in global_decomposition_table[kind].items()
    }
    library = torch.library.Library("aten", "IMPL", "Meta")
    for op, kernel in table.items():
        is_of_aten = isinstance(op, OpOverload) and op.namespace == "aten" and not op.is_view
        if is_of_aten and not any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), kind) for kind in KINDS):
            library.impl(op, kernel)
    of_python._meta_lib_dont_use_me_use_register_meta = library
