"""What `sdp-train ... --network FILE.py:NAME` starts: the program within this Python."""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from sdp_train.network import AnyNetwork
from sdp_train.program import fail, run


def network_named(place: str) -> Callable[[], AnyNetwork]:
    """The class or function of FILE.py:NAME."""
    file, _, name = place.rpartition(":")
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        fail(f"--network {place}: there is no file {path}")
    sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        fail(f"--network {place}: {path.name} has no {name}")
    return getattr(module, name)


def main(command: str, arguments: list[str]) -> int:
    return run(arguments, network_named(os.environ["SDP_NETWORK"]))
