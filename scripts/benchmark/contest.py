"""Ours and the peers take turns: every round runs each of them once, every other round in the opposite order."""

import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import time
from collections.abc import Callable

from gpuhour.images import write_noise_images, write_noise_tokens
from gpuhour.jobs import GRACE_S, Context, OutOfTime
from gpuhour.runs import lines_of, write_spec

from benchmark.models import model_of
from benchmark.peers import INTERVAL, Peer, run_peer

RUN_LIMIT_S = 600
OURS = {
    "ddp": ("C = 1", {"subnetwork": {"coverage": 1}, "optimizer": {"shard": False}}),
    "sharded": ("C = 1, sharded", {"subnetwork": {"coverage": 1}, "optimizer": {"shard": True}}),
    "half": ("C = 1/2", {"subnetwork": {"coverage": "1/2", "construction": "block", "masking": "forward"}}),
}
ALONE = ("ddp",)  # what one process with one worker can be
QUIET = {
    "schedule": {"name": "constant"},
    "checkpoint": {"every_epochs": 0},
    "eval": {"every_epochs": 0, "recalibrate_batches": 0, "branch_scale": "none", "max_samples": 4},
}


@dataclasses.dataclass
class Contest:
    """One model on so many processes."""

    context: Context
    model: str
    processes: int
    precision: str
    steps: int  # timed, after a warm-up of one interval
    binary: pathlib.Path
    baseline: pathlib.Path | None
    peers: list[Peer]

    @property
    def threads(self) -> int:
        """Of each process, ours and theirs: what the user has set, or a share of the cores."""
        return int(os.environ.get("OMP_NUM_THREADS") or max(1, len(os.sched_getaffinity(0)) // self.processes))

    def ours(self, binary: pathlib.Path, variant: str) -> dict:
        """A run of sdp-train: its figures, and the FLOPs of a step of all processes by its plan."""
        model, steps = model_of(self.model), self.steps + INTERVAL
        data, folder = self.context.state / "noise", self.context.fresh("run")
        if not data.exists():  # new samples in every step, so that no epoch ends within a run
            samples = self.processes * model.batch * steps
            if model.is_text:
                write_noise_tokens(data, samples * model.length + 1, model.vocabulary)
            else:
                write_noise_images(data, samples + 1)
        train = {"precision": self.precision, "device": self.context.device, "max_steps": steps, "log_every_steps": INTERVAL}
        own = {"data": {"path": str(data)}, "subnetwork": {"workers": self.processes}, "output": {"dir": str(folder)}}
        spec: dict = {"name": "run"}
        for part in (model.spec(), OURS[variant][1], QUIET, own | {"train": train}):
            spec |= {section: spec.get(section, {}) | values for section, values in part.items()}
        command = [binary, "--config", write_spec(folder, spec), "--nproc", self.processes]
        threads = {"OMP_NUM_THREADS": str(self.threads)}
        self.context.run(command, log_name=f"{self.model}-{self.processes}-{variant}", env=threads)
        lines = [line for line in lines_of(folder / "run", "train") if line["step"] > INTERVAL]
        plan = json.loads((folder / "run" / "plan.json").read_text())
        parts = {
            part: statistics.median(statistics.mean(line["times"][f"{part}_ms"]) for line in lines)
            for part in ("forward", "backward", "optimizer")
        }
        return {
            "step_ms": [line["step_ms"] for line in lines],
            "parts_ms": parts | {"exchange": statistics.median(line["exchange_wait_ms"] for line in lines)},
            "process_bytes": [max(line["peak_process_memory_bytes"] for line in lines)],  # of the process with the most
            "flops": model.batch * sum(process["flops_per_sample"] for process in plan["per_process"]),
            "parameters": plan["dense"]["parameters"],
            "dense_flops": model.batch * self.processes * plan["dense"]["flops_per_sample"],
        }

    def theirs(self, peer: Peer) -> dict:
        options = ["--device", self.context.device, "--precision", self.precision, "--steps", self.steps]
        return run_peer(self.context, peer, self.model, options, processes=self.processes, threads=self.threads)

    def contestants(self) -> tuple[list[dict], dict[str, Callable[[], dict]], list[dict]]:
        """What a result says of each, how to run it, and what is left out."""
        runs, calls, left_out = [], {}, []

        def add(label: str, call: Callable[[], dict], **more: str) -> None:
            runs.append({"label": label, **more, "rounds": [], "error": ""})
            calls[label] = call

        for variant in OURS if self.processes > 1 else ALONE:
            for side, binary in (("ours", self.binary), ("before", self.baseline)):
                if binary:
                    label = f"{side}, {OURS[variant][0]}"
                    add(label, lambda b=binary, v=variant: self.ours(b, v), side=side, variant=variant)
        for peer in self.peers:
            label = peer.label(self.processes)
            if reason := peer.left_out(self.processes, self.context.on_gpu):
                left_out.append({"label": label, "reason": reason})
            elif not (peer.has("channels_last") and model_of(self.model).is_text):
                add(label, lambda p=peer: self.theirs(p), side="peer", variant=peer.name)
        return runs, calls, left_out

    def run(self, rounds: int, say: Callable[[str], None]) -> dict:
        """A failed contestant keeps what it did before and its error, and is not run again."""
        runs, calls, left_out = self.contestants()
        loads = []
        for number in range(rounds):
            loads.append(os.getloadavg()[0])
            for run in runs if number % 2 == 0 else runs[::-1]:
                if run["error"]:
                    continue
                self.context.deadline = time.monotonic() + RUN_LIMIT_S + GRACE_S
                try:
                    run["rounds"].append(calls[run["label"]]())
                    told = f"{statistics.median(run['rounds'][-1]['step_ms']):.1f} ms"
                except (RuntimeError, OutOfTime, OSError, LookupError, ValueError) as error:
                    told = run["error"] = f"{type(error).__name__}: {error}"
                finally:
                    self.context.end_all()
                say(f"{self.model}, {self.processes} processes, round {number + 1} of {rounds}: {run['label']}: {told}")
        shutil.rmtree(self.context.state / "noise", ignore_errors=True)  # of this batch and so many processes
        case = {"model": self.model, "processes": self.processes, "threads": self.threads, "loads": loads}
        return case | {"runs": runs, "left_out": left_out}


def product_rate(context: Context, precision: str, saved: pathlib.Path | None, binary: pathlib.Path) -> float:
    """FLOP/s of matrix products of one device with all its cores, as `doctor` measures them or has saved them. 0: not known."""
    if saved is None:
        saved = context.state / "profile.json"
        context.deadline = time.monotonic() + RUN_LIMIT_S
        command = [binary, "doctor", "--device", context.device, "--nproc", 1]  # others would share the cores
        command += ["--output", context.scratch("doctor"), "--save", saved]
        all_cores = {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
        context.wait(context.start(command, log=context.log / "doctor.txt", env=all_cores))  # 1 if another check fails
    return json.loads(saved.read_text())["profiles"][precision]["flops_per_s"] if saved.exists() else 0.0
