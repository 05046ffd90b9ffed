"""The program within this Python."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from sdp_train.meta_kernels import use_kernels_of_the_program
from sdp_train.network import AnyNetwork, NetworkError
from sdp_train.structure import Structure

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


def fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


def extension() -> Any:
    """The module _sdp_train. It is installed; or beside the program; or in the folder `build` of the sources."""
    program = os.environ.get("SDP_TRAIN")
    sys.path += [str(Path(program).parent)] if program else []
    sys.path += [str(Path(__file__).parents[2] / "build")]
    try:
        import _sdp_train
    except ImportError as error:
        fail(f"the extension of sdp-train cannot be loaded: {error}. Install sdp-train-python for this Python, or build it")
    if (wanted := _sdp_train.torch_version) != torch.__version__.partition("+")[0]:
        fail(f"the extension of sdp-train is of torch {wanted}, this torch is {torch.__version__}. Install torch=={wanted}")
    return _sdp_train


def run(arguments: list[str], network: Callable[[], AnyNetwork]) -> int:
    """Runs sdp-train with these arguments, its network being what `network` makes. Returns the exit code."""
    program = extension()
    use_kernels_of_the_program(program.add_meta_kernels)
    try:
        structure = Structure(network)
    except NetworkError as error:
        fail(str(error))
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        return program.run(["sdp-train", *arguments], [sys.executable, *sys.orig_argv[1:]], structure)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def train(
    config: str | os.PathLike[str],
    network: Callable[[], AnyNetwork],
    overrides: Sequence[str] = (),
    *,
    resume: str | None = None,
    processes: int | None = None,
) -> None:
    """Trains the experiment of a YAML file, which has `model: {name: own}`, with the network that `network` makes.

    `overrides` are those of --set, "a.b=v"; `resume` is "latest", "latest-good" or "if-any". Ranks come from torchrun, mpirun
    or srun; otherwise this starts `processes` copies of the script (default: one per GPU, on a CPU as many as the cores allow).
    Raises SystemExit with the program's exit code if the run does not come to its end; the reason was printed.
    """
    arguments = ["--config", os.fspath(config)]
    for override in overrides:
        arguments += ["--set", override]
    if resume:
        arguments += [f"--resume={resume}"]
    if processes is None and not hasattr(sys.modules["__main__"], "__file__"):
        processes = 1  # a notebook cannot be started again
    if processes is not None:
        arguments += ["--nproc", str(processes)]
    code = run(arguments, network)
    if code:
        raise SystemExit(code)
