"""What the compiled device kernels occupy of a GPU, by cuobjdump, which comes with triton: a kernel that spills, or so many
registers that a multiprocessor holds fewer than 1,024 threads, makes a step slower without any other sign."""

import os
import pathlib
import re
import subprocess

import pytest

triton = pytest.importorskip("triton")  # with torch for CUDA

CUOBJDUMP = pathlib.Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
REGISTERS = 65536  # of a multiprocessor
KERNELS = {
    "rms_norm_kernel", "rms_norm_gradient_kernel", "swiglu_kernel", "swiglu_gradient_kernel", "rotate_kernel",
    "cross_entropy_kernel",
}


@pytest.fixture(scope="module")
def kernels():
    """(architecture, kernel, {resource: amount}) of every instance."""
    command = [CUOBJDUMP, "--dump-resource-usage", os.environ["DEVICE_KERNELS"]]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found, arch = [], ""
    for line in text.splitlines():
        if match := re.match(r"arch = (\w+)", line):
            arch = match[1]
        elif match := re.match(r" Function (\w+):", line):
            function = match[1]
        elif line.startswith("  REG:"):
            amounts = {name: int(amount) for name, amount in re.findall(r"(\w+):(\d+)", line)}
            name = next(name for name in sorted(KERNELS, key=len, reverse=True) if f"{len(name)}{name}" in function)
            found.append((arch, name, amounts))
    return found


def test_every_kernel_is_compiled_for_every_architecture(kernels):
    assert {(arch, name) for arch, name, _ in kernels} == {(arch, name) for arch in ("sm_80", "sm_90", "sm_100") for name in KERNELS}


def test_no_kernel_spills_or_takes_too_many_registers(kernels):
    for arch, name, amounts in kernels:
        assert amounts["STACK"] == amounts["LOCAL"] == 0, (arch, name, amounts)
        assert amounts["REG"] <= REGISTERS // 1024, (arch, name, amounts)
