"""Starts runs of sdp-train as a user or a launcher does, and reads their results."""

import importlib.util
import json
import os
import pathlib
import socket
import sys
import time

from gpuhour.jobs import Context, OutOfTime, end_group

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
DRIVER = "/usr/local/nvidia/lib64"  # where containers mount it


def write_spec(folder: pathlib.Path, spec: dict) -> pathlib.Path:
    """Writes a spec as JSON, which is valid YAML."""
    path = folder / f"{spec['name']}.yaml"
    path.write_text(json.dumps(spec, indent=1) + "\n")
    return path


def lines_of(run_dir: pathlib.Path, kind: str) -> list[dict]:
    file = run_dir / "metrics.jsonl"
    if not file.exists():
        return []
    records = []
    for line in file.read_text().splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue  # a line that is still being written
        if record["kind"] == kind:
            records.append(record)
    return records


def losses_of(run_dir: pathlib.Path) -> list[float]:
    """Losses of the logged training steps, then of the assembled model at the end."""
    evaluations = lines_of(run_dir, "eval")
    return [line["loss"] for line in lines_of(run_dir, "train")] + [line["loss"] for line in evaluations[-1:]]


def largest_difference(losses: list[float], reference: list[float]) -> float:
    """Relative difference. A different number of losses is an error."""
    if len(losses) != len(reference):
        raise RuntimeError(f"{len(losses)} losses, the recorded run has {len(reference)}")
    return max(abs(a - b) / max(abs(b), 1e-300) for a, b in zip(losses, reference))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Ranks:
    """Processes of one run, numbered as by torchrun, each with its own log."""

    def __init__(self, context: Context, arguments, size: int, *, backend: str, label: str = "run",
                 env_of=None, limits_of=None):
        """With NCCL on one device each process claims to be a different host; otherwise NCCL refuses."""
        self.context = context
        self.logs = [context.log / f"{label}-rank-{rank}.txt" for rank in range(size)]
        port = str(free_port())
        self.processes = []
        for rank in range(size):
            values = (rank, size, rank, size, "127.0.0.1", port)
            env = dict(zip(RANK_VARIABLES, map(str, values)))
            if backend == "nccl":
                env |= {"NCCL_HOSTID": f"rank-{rank}", "NCCL_SOCKET_IFNAME": "lo"}
            env |= env_of(rank) if env_of else {}
            command = [context.binary, *arguments, "--set", f"train.backend={backend}"]
            limits = limits_of(rank) if limits_of else None
            self.processes.append(context.start(command, log=self.logs[rank], env=env, limits=limits))

    def wait(self, limit_s: float = float("inf")) -> list[int]:
        """Exit codes by rank. Processes that do not end are killed, and OutOfTime is raised."""
        try:
            return [self.context.wait(process, limit_s) for process in self.processes]
        except OutOfTime:
            self.end()
            raise

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                end_group(process)

    def text(self, rank: int) -> str:
        return self.logs[rank].read_text(errors="replace")

    def wait_until_trained(self, run_dir: pathlib.Path, lines: int) -> None:
        """Waits until this many training lines are logged. It is an error if the run ends earlier."""
        while len(lines_of(run_dir, "train")) < lines:
            for rank, process in enumerate(self.processes):
                if process.poll() is not None:
                    self.end()
                    raise RuntimeError(f"rank {rank} ended with {process.returncode} before it trained; see its log")
            if self.context.left_s() < 20:
                self.end()
                raise OutOfTime("the run did not start training in time")
            time.sleep(0.05)


def without_rank_variables() -> dict[str, str]:
    """This process's environment without the variables of launchers."""
    families = ("OMPI_", "PMI_", "PMIX_", "MPI_", "SLURM_", "TORCHELASTIC_")
    return {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES and not k.startswith(families)}


def environment() -> dict[str, str]:
    """The environment in which the LibTorch of this Python's torch is found first, and a GPU's driver where it was found before."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        raise SystemExit(f"{sys.executable} has no torch. Run this file with a Python that has it, here .venv/bin/python.")
    lib = pathlib.Path(torch.origin).parent / "lib"
    nvidia = sorted((lib.parent.parent / "nvidia").glob("*/lib"))
    inherited = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    paths = ":".join(map(str, [lib, *nvidia, *inherited, DRIVER]))
    return without_rank_variables() | {"LD_LIBRARY_PATH": paths, "PYTHON": sys.executable}
