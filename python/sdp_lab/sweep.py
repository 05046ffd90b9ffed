"""`sdp-train sweep`: trains the points of a sweep one after another.

    OUTPUT.DIR/NAME/sweep.json     {"name", "runs": [{"name", "folder", "label", "values"}, ...]}
    OUTPUT.DIR/NAME/POINT/         the run folder of each point

In sweep.json, `folder` is relative to the file, and `values` maps axes to values, both as written in the sweep's file.

Every run is a process of the trainer with --resume=if-any. A run belongs to the process that holds the lock of its
folder, so any number of sweeps, on any hosts that see the folder, may share the runs.
"""

import argparse
import ctypes
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sdp_lab.sweep_file import Point, SweepFile
from sdp_lab.text import draw, duration
from sdp_lab.trainer import LabError, ask, binary

PREEMPTED = 75  # exit code of a run that a signal stopped after a checkpoint
PEER_LOST = 4
USAGE = 2
LAST_LINES = 20  # of the output of a run that failed


class Run:
    """A point, and what the trainer says about it."""

    def __init__(self, point: Point, answer: dict[str, Any], folder: Path) -> None:
        self.point = point
        self.folder = folder / point.name
        self.state = answer["state"]
        self.changes = answer["changes"]
        self.price = answer.get("price", {})

    @property
    def owner(self) -> dict[str, Any] | None:
        return self.state.get("owner")

    @property
    def is_done(self) -> bool:
        return self.state["stage"] == "done"

    def words(self) -> str:
        if any(change["has_effect"] for change in self.changes):
            return "other spec"
        if self.owner:
            return f"running on {self.owner['host']}"
        stage = self.state["stage"]
        return f"interrupted at step {self.state['step']}" if stage == "interrupted" else stage


class Sweep:
    """Loads, checks and, for `device`, prices every point; writes nothing."""

    def __init__(self, file: Path, overrides: list[str], processes: int | None, device: str | None) -> None:
        source = SweepFile(file)
        self.name = source.name
        self.device = device
        refuse_overrides(source, overrides)
        points = source.points()
        for point in points:
            point.set += [*overrides, f"name={json.dumps(point.name, ensure_ascii=False)}"]
        self.options = [] if processes is None else ["--nproc", str(processes)]
        options = ["--sweep", self.name, *self.options, *(["--price", device] if device else [])]
        asked = [{"label": point.label, "configs": point.configs, "set": point.set} for point in points]
        answers = ask("check", *options, stdin=json.dumps(asked))["results"]
        refuse_errors(source, points, answers)
        outputs = {answer["output_dir"]: point for point, answer in reversed(list(zip(points, answers, strict=True)))}
        if len(outputs) > 1:
            found = ", ".join(f"{output} for {point.name}" for output, point in outputs.items())
            raise LabError(
                f"output.dir is {found}. Name one folder for all runs in the sweep's file: set: {{output.dir: runs}}"
            )
        folder = os.path.join(answers[0]["output_dir"], self.name)  # as it is written
        self.folder = Path(folder)
        self.runs: list[Run] = []
        self.notes: list[str] = []
        first_of: dict[tuple, Point] = {}
        for point, answer in zip(points, answers, strict=True):
            point.set.append(f"output.dir={json.dumps(folder, ensure_ascii=False)}")
            first = first_of.setdefault((point.part, *answer["values"].items()), point)
            if first is point:
                self.runs.append(Run(point, answer, self.folder))
            else:
                self.notes.append(f"{point.name}: the same run as {first.name}")

    def refuse_changed_runs(self) -> None:
        for run in self.runs:
            for change in run.changes:
                if change["has_effect"]:
                    raise LabError(
                        f"point {run.point.name}: the run in {run.folder} was made with a different {change['text']}. "
                        "Remove that folder to run it again, or give the sweep another name."
                    )

    def describe(self) -> str:
        """The runs with their state, price and settings, followed by changes of runs."""
        common = set.intersection(*({*run.point.configs, *run.point.set} for run in self.runs))
        rows = [["run", "state", "steps", "FLOPs", "GiB per process", "hours", "sets"]]
        for run in self.runs:
            sets = [word for word in (*run.point.configs, *run.point.set) if word not in common and word[:5] != "name="]
            price = {key: f"{value:.3g}" for key, value in run.price.items()} | {"steps": str(run.price.get("steps", "-"))}
            gib = f"{run.price['peak_bytes'] / 2**30:.3g}" if run.price else "-"
            rows.append(
                [
                    run.point.name,
                    run.words(),
                    price["steps"],
                    price.get("flops", "-"),
                    gib,
                    price.get("hours", "-"),
                    " ".join(sets),
                ]
            )
        changes = [f"{run.point.name}: the run has a different {change['text']}" for run in self.runs for change in run.changes]
        sums = {key: sum(run.price.get(key, math.nan) for run in self.runs) for key in ("steps", "flops", "hours")}
        total = ", {steps} steps, {flops:.3g} FLOPs and {hours:.3g} hours on {device} in all".format(**sums, device=self.device)
        if math.isnan(sums["steps"]):
            total = ""
            changes.append("-: how long an epoch is only the data (data.path) tell, which are not there")
        head = f"sweep {self.name}: {len(self.runs)} runs in {self.folder}{total}\n"
        return head + draw(rows, "text", left=(0, 1, len(rows[0]) - 1)) + "\n".join(changes)

    def write_json(self) -> None:
        """Several sweeps may do this at the same time; all write the same content."""
        runs = [
            {"name": run.point.name, "folder": run.point.name, "label": run.point.label, "values": run.point.values}
            for run in self.runs
        ]
        text = json.dumps({"name": self.name, "runs": runs}, indent=2, ensure_ascii=False) + "\n"
        file = self.folder / "sweep.json"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if file.exists() and file.read_text("utf-8") == text:
                return
            own = file.with_name(f"sweep-{os.getpid()}.json")
            own.write_text(text, "utf-8")
            own.rename(file)
        except OSError as error:
            raise LabError(f"cannot write {file}: {error}. Set output.dir to another place.") from error


def refuse_overrides(source: SweepFile, overrides: list[str]) -> None:
    """Refuses an override that would apply to every point, whatever the point's name says."""
    for assignment in overrides:
        key = assignment.partition("=")[0]
        if key == "name":
            raise LabError(f"--set {assignment}: the sweep names its runs itself")
        for axis, values in source.axes.items():
            for setting in {setting for changes in values.values() for setting in changes.set}:
                if f"{setting}.".startswith(f"{key}."):
                    raise LabError(f"--set {assignment}: the axis {axis} sets {setting}. Change the sweep's file instead.")


def errors_of(text: str) -> list[str]:
    """The trainer's errors: one, or a line that counts them and then each, indented, at its place."""
    return re.split(r"\n  (?=--set |[^\n]*?:\d+:\d+: )", text)[1:] if re.match(r"\d+ errors:\n", text) else [text]


def refuse_errors(source: SweepFile, points: list[Point], answers: list[dict[str, Any]]) -> None:
    """All errors of all points, each once, at the place in the sweep's file."""
    points_of: dict[str, list[str]] = {}
    for point, answer in zip(points, answers, strict=True):
        for error in errors_of(answer["error"]) if "error" in answer else []:
            for setting in point.set:
                if setting in source.places and error.startswith(f"--set {setting}: "):
                    error = error.replace(f"--set {setting}", source.places[setting], 1)
            points_of.setdefault(error, []).append(point.name)
    lines = [
        f"point {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {error}"
        for error, names in points_of.items()
    ]
    if lines:
        raise LabError("\n".join(lines), next(answer["code"] for answer in answers if "error" in answer))


def become_run(parent: int) -> None:
    """In a child before it becomes the trainer: the kernel kills it if this process is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(PEER_LOST)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def say(line: str) -> None:
    """Flushed before a run's own output."""
    print(line, flush=True)


class Runner:
    """Runs everything that is not done. Each process tries a run once; a failed run does not stop the sweep."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.open = [run for run in sweep.runs if not run.is_done]
        self.at_first = len(self.open)
        self.began = time.monotonic()
        self.stopped = False
        self.failures: list[tuple[Run, int]] = []
        self.has_told_of_others = False
        # Blocked, so that none is lost between two waits.
        hangup = set() if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else {signal.SIGHUP}  # nohup
        self.signals = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD} | hangup
        signal.pthread_sigmask(signal.SIG_BLOCK, self.signals)

    def run(self) -> int:
        name, total = self.sweep.name, len(self.sweep.runs)
        say(f"sweep {name}: {total} runs in {self.sweep.folder}, {total - self.at_first} of them done")
        self.name_runs_on_this_host()
        all_run = False
        while self.open and not self.is_stopped() and self.look(wait=all_run):
            for run in [run for run in self.open if run.is_done]:
                self.close(run, "done by another process")
            free = next((run for run in self.open if not run.owner), None)
            all_run = free is None
            if free:
                self.run_one(free)
            elif not self.has_told_of_others:
                self.has_told_of_others = True
                for run in self.open:
                    say(f"{self.place(run)}: running in another process ({run.owner['text']}); waiting for it")
        for run, code in self.failures:
            print(f"error: the run {run.point.name} failed (exit code {code}); see {run.folder}", file=sys.stderr)
        if self.open:
            say(f"sweep {name}: stopped by a signal; run the same command to continue")
            return PREEMPTED
        say(f"sweep {name}: {total - len(self.failures)} of {total} runs done")
        return self.failures[0][1] if self.failures else 0

    def place(self, run: Run) -> str:
        return f"[{self.sweep.runs.index(run) + 1}/{len(self.sweep.runs)}] {run.point.name}"

    def name_runs_on_this_host(self) -> None:
        """Sweeps on one host take each other's cores and GPUs, unless the user has divided them."""
        here = [run for run in self.open if run.owner and run.owner["is_on_this_machine"]]
        for run in [] if {"OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"} & os.environ.keys() else here:
            say(
                f"{self.place(run)}: runs on this host in another sweep ({run.owner['text']}). Each sweep uses all cores and "
                "GPUs of the host, unless taskset, OMP_NUM_THREADS or CUDA_VISIBLE_DEVICES divides them (docs/processes.md)"
            )

    def look(self, wait: bool) -> bool:
        """Renews the states of the open runs. `wait`: once one of them is done, or its process gone, which takes a minute
        to see of another host's. Returns False if a signal stopped that."""
        with tempfile.TemporaryFile("w+") as folders, tempfile.TemporaryFile("w+") as states:
            json.dump([str(run.folder) for run in self.open], folders)
            folders.seek(0)
            code = self.wait_for(["check", *(["--wait"] if wait else [])], stdin=folders, stdout=states)
            if code and not self.stopped:
                raise LabError(f"sdp-train check, which looks at the runs, ended with exit code {code}", code)
            states.seek(0)
            for run, state in zip(self.open, [] if code else json.load(states)["results"], strict=not code):
                run.state = state
        return code == 0

    def run_one(self, run: Run) -> None:
        place, began = self.place(run), time.monotonic()
        is_cut = run.state["stage"] == "interrupted"
        say(f"{place}: resumes from step {run.state['step']}" if is_cut else f"{place}: starts")
        code, last_lines = self.train(run)
        took = duration(time.monotonic() - began)
        if code == PREEMPTED or (code != 0 and self.stopped):
            self.stopped = True
            say(f"{place}: stopped after {took}")
        elif code == USAGE and self.look(wait=False) and run.owner:
            say(f"{place}: another process took it first")
        else:
            for line in last_lines:
                print(f"  {line}", file=sys.stderr)
            self.failures += [(run, code)] if code else []
            self.close(run, f"{f'exit code {code}' if code else 'done'} after {took}")

    def close(self, run: Run, what: str) -> None:
        """With an estimate for all processes together, if they continue."""
        self.open.remove(run)
        elapsed, left = time.monotonic() - self.began, len(self.open)
        rest = f", ETA {duration(elapsed / (self.at_first - left) * left)}" if left else ""
        say(f"{self.place(run)}: {what}; elapsed {duration(elapsed)}{rest}")

    def train(self, run: Run) -> tuple[int, list[str]]:
        """Its exit code, and the last lines of its output if it failed and they are not on the terminal."""
        command = [word for config in run.point.configs for word in ("--config", config)]
        command += [word for setting in run.point.set for word in ("--set", setting)]
        command += [*self.sweep.options, "--resume=if-any"]
        if sys.stdout.isatty():
            return self.wait_for(command), []
        file = run.folder / "output.txt"
        try:
            run.folder.mkdir(parents=True, exist_ok=True)
            with file.open("ab") as output:
                begin = output.tell()
                code = self.wait_for(command, stdout=output, stderr=output)
            lines = file.read_bytes()[begin:].decode(errors="replace").splitlines()
        except OSError as error:
            raise LabError(f"cannot write {file}: {error}", 3) from error
        return code, [] if code in (0, PREEMPTED) else lines[-LAST_LINES:]

    def wait_for(self, arguments: list[str], **options: Any) -> int:
        """Runs the trainer in a process group of its own, to which signals are passed on."""
        parent = os.getpid()
        options = {"stdin": subprocess.DEVNULL, **options}
        command = [str(binary()), *arguments]
        child = subprocess.Popen(command, process_group=0, preexec_fn=lambda: become_run(parent), **options)
        while (code := child.poll()) is None:
            number = signal.sigwait(self.signals)
            if number != signal.SIGCHLD:
                self.stopped = True
                child.send_signal(number)
        return code if code >= 0 else PEER_LOST

    def is_stopped(self) -> bool:
        """Whether a stop signal arrived, also between two runs."""
        while (arrived := signal.sigtimedwait(self.signals, 0)) is not None:
            self.stopped = self.stopped or arrived.si_signo != signal.SIGCHLD
        return self.stopped


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the first run
    parser = argparse.ArgumentParser(
        "sdp-train sweep",
        description="Trains a grid of experiments one after another; continues a stopped sweep.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--config", type=Path, required=True, help="the sweep in YAML")
    add("--set", action="append", default=[], metavar="A.B=V", help="override one key of every run (repeatable)")
    add("--nproc", type=int, metavar="W", help="processes of each run")
    add("--dry-run", action="store_true", help="list the runs with progress, steps, FLOPs, planned memory (of owner sets by "
        "`window`) and hours; needs no data")  # fmt: skip
    add("--device", default="h100", help="of the hours of --dry-run, as of plan (default: h100)")
    options = parser.parse_args(arguments)
    sweep = Sweep(options.config, options.set, options.nproc, options.device if options.dry_run else None)
    if options.dry_run:
        say(sweep.describe().rstrip())
    for note in sweep.notes:
        say(note)
    sweep.refuse_changed_runs()
    if options.dry_run:
        return 0
    sweep.write_json()
    return Runner(sweep).run()
