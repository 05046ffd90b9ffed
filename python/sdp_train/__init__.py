"""Subnetwork data parallelism in Python: `train`, `Network` and `divide` (docs/own_network.md); and `main`, the wheel's command
`sdp-train`, which starts the program beside this file with the LibTorch of this Python's environment."""

import importlib
import importlib.metadata
import importlib.util
import os
import shlex
import sys
from pathlib import Path
from typing import Any


def libtorch(wanted: str) -> Path | str:
    """The folder of LibTorch's libraries, or what is wrong; `wanted` is a requirement such as torch==2.11.*."""
    spec = importlib.util.find_spec("torch")  # does not import it, which takes seconds
    if spec is None or spec.origin is None:
        return f"{wanted} is not installed for {sys.executable}"
    folder = Path(spec.origin).parent / "lib"
    version = importlib.metadata.version("torch")
    if not version.startswith(wanted.removeprefix("torch==").removesuffix("*")):
        return f"{folder} is of torch {version}, and {wanted} is needed"
    missing = [name for name in ("libtorch.so", "libtorch_cuda.so") if not (folder / name).exists()]
    if missing:
        return f"{' and '.join(missing)} not found in {folder}; torch must be the build with CUDA, also for a CPU"
    return folder


def main() -> None:
    package = Path(__file__).parent
    wanted = next(line for line in importlib.metadata.requires("sdp-train") or [] if line.startswith("torch=="))
    found = libtorch(wanted)
    if isinstance(found, str):
        command = shlex.join([sys.executable, "-m", "pip", "install", wanted])
        print(f"error: {found}. Install it: {command}", file=sys.stderr)
        sys.exit(2)
    if found != package.parent / "torch" / "lib":  # where the program looks by itself
        folders = [str(found), str(found.parents[1] / "nvidia" / "cu13" / "lib"), os.environ.get("LD_LIBRARY_PATH")]
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, folders))
    os.environ["SDP_PYTHON"] = sys.executable  # for report, sweep and draw
    program = package / "bin" / "sdp-train"
    os.execv(program, [str(program), *sys.argv[1:]])


def __getattr__(name: str) -> Any:
    # The wheel's command does not import torch, which takes seconds.
    modules = {"Network": "network", "NetworkError": "network", "divide": "network", "train": "program"}
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"sdp_train.{modules[name]}"), name)
