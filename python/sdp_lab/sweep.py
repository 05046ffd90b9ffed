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
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sdp_lab.sweep_file import Point, SweepFile
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
    """Loads, checks and, for `price`, prices every point; writes nothing."""

    def __init__(self, file: Path, overrides: list[str], processes: int | None, price: bool) -> None:
        source = SweepFile(file)
        self.name = source.name
        refuse_overrides(source, overrides)
        points = source.points()
        for point in points:
            point.set += [*overrides, f"name={json.dumps(point.name, ensure_ascii=False)}"]
        self.options = [] if processes is None else ["--nproc", str(processes)]
        options = ["--sweep", self.name, *self.options, *(["--price"] if price else [])]
        asked = [{"label": point.label, "configs": point.configs, "set": point.set} for point in points]
        answers = ask("check", *options, stdin=json.dumps(asked))
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
        """A table of the runs with their state, price and settings, followed by changes of runs."""
        common = set.intersection(*({*run.point.configs, *run.point.set} for run in self.runs))
        rows = [("run", "state", "steps", "FLOPs", "GiB per process", "sets")]
        for run in self.runs:
            steps, flops = run.price.get("steps", "-"), run.price.get("flops")
            sets = [word for word in (*run.point.configs, *run.point.set) if word not in common and word[:5] != "name="]
            memory = f"{run.price['peak_bytes'] / 2**30:.3g}" if run.price else "-"
            price = (str(steps), f"{flops:.3g}" if flops else "-", memory)
            rows.append((run.point.name, run.words(), *price, " ".join(sets)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if 2 <= i <= 4 else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        lines.insert(1, "-" * (sum(widths) + 2 * len(widths) - 2))
        for run in self.runs:
            lines += [f"{run.point.name}: the run has a different {change['text']}" for change in run.changes]
        return "\n".join(lines)

    def totals(self) -> str:
        """Of all runs, if every run's length is known."""
        if not all("steps" in run.price for run in self.runs):
            return ""
        steps, flops = (sum(run.price[key] for run in self.runs) for key in ("steps", "flops"))
        return f", {steps} steps and {flops:.3g} FLOPs in all"

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
            with tempfile.NamedTemporaryFile("w", dir=self.folder, prefix="sweep-", encoding="utf-8", delete=False) as own:
                own.write(text)
                os.fchmod(own.fileno(), 0o644)
            os.rename(own.name, file)
        except OSError as error:
            raise LabError(f"cannot write {file}: {error}. Set output.dir to another place.") from error


def refuse_overrides(source: SweepFile, overrides: list[str]) -> None:
    """Refuses an override that would apply to every point, whatever the point's name says."""
    for assignment in overrides:
        key = assignment.partition("=")[0]
        if key == "name":
            raise LabError(f"--set {assignment}: the sweep names its runs itself")
        for axis in source.axes.values():
            for setting in {setting for changes in axis.values.values() for setting in changes.set}:
                if f"{setting}.".startswith(f"{key}."):
                    raise LabError(f"--set {assignment}: the axis {axis.name} sets {setting}. Change the sweep's file instead.")


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
    if not points_of:
        return
    lines = []
    for error, names in points_of.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(f"point {names[0]}{more}: {error}")
    raise LabError("\n".join(lines), next(answer["code"] for answer in answers if "error" in answer))


class Signals:
    """Turns signals into bytes of a pipe, whichever thread they arrive in, so that none is lost between two waits."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGCHLD):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                signal.signal(number, lambda *_: None)

    def wait(self, seconds: float | None) -> int | None:
        """The next signal; None at the end of the time."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        return os.read(self._read, 1)[0] if ready else None


def die_with_parent(parent: int) -> None:
    """In a child before it becomes the trainer: the kernel kills it if this process is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(PEER_LOST)


def say(line: str) -> None:
    """Flushed before a run's own output."""
    print(line, flush=True)


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest:02}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02}m"


class Runner:
    """Runs everything that is not done. Each process tries a run once; a failed run does not stop the sweep."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.open = [run for run in sweep.runs if not run.is_done]
        self.at_first = len(self.open)
        self.began = time.monotonic()
        self.signals = Signals()
        self.stopped = False
        self.failures: list[tuple[Run, int]] = []
        self.has_told_of_others = False

    def run(self) -> int:
        name, total = self.sweep.name, len(self.sweep.runs)
        say(f"sweep {name}: {total} runs in {self.sweep.folder}, {total - self.at_first} of them done")
        self.name_runs_on_this_host()
        while self.open and not self.is_stopped():
            if not self.pass_over_open_runs() and self.open and not self.is_stopped() and self.wait_for_others():
                self.pass_over_open_runs(has_looked=True)
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
        if "OMP_NUM_THREADS" in os.environ or "CUDA_VISIBLE_DEVICES" in os.environ:
            return
        for run in self.open:
            if run.owner and run.owner["is_on_this_machine"]:
                say(
                    f"{self.place(run)}: runs on this host in another sweep ({run.owner['text']}). Each sweep uses all "
                    "cores and GPUs of the host, unless taskset, OMP_NUM_THREADS or CUDA_VISIBLE_DEVICES divides them "
                    "(docs/processes.md)"
                )

    def look(self, run: Run) -> bool:
        """Renews the state of a run. Returns False if a signal stopped that."""
        try:
            (run.state,) = ask("check", stdin=json.dumps([str(run.folder)]))
        except LabError:
            if self.is_stopped():  # Ctrl-C of a terminal, which reached the trainer too
                return False
            raise
        return True

    def pass_over_open_runs(self, has_looked: bool = False) -> bool:
        """Runs every run that no other process holds. Returns whether there was one. `has_looked`: the states are new,
        which is enough for one run."""
        has_run = False
        for run in list(self.open):
            if self.is_stopped() or (has_looked and has_run) or (not has_looked and not self.look(run)):
                break
            if run.is_done:
                say(f"{self.place(run)}: done by another process{self.remaining()}")
            elif not run.owner:
                has_run = True
            if run.is_done or (not run.owner and self.run_one(run)):
                self.open.remove(run)
        return has_run

    def run_one(self, run: Run) -> bool:
        """Returns whether the run was closed; False if another process was faster or the run was stopped."""
        place, began = self.place(run), time.monotonic()
        is_cut = run.state["stage"] == "interrupted"
        say(f"{place}: resumes from step {run.state['step']}" if is_cut else f"{place}: starts")
        code, last_lines = self.train(run)
        took = duration(time.monotonic() - began)
        if code == PREEMPTED or (code != 0 and self.stopped):
            self.stopped = True
            say(f"{place}: stopped after {took}")
            return False
        if code == USAGE and self.look(run) and run.owner:
            say(f"{place}: another process took it first")
            return False
        for line in last_lines:
            print(f"  {line}", file=sys.stderr)
        if code != 0:
            self.failures.append((run, code))
        say(f"{place}: {'done' if code == 0 else f'exit code {code}'} after {took}{self.remaining()}")
        return True

    def train(self, run: Run) -> tuple[int, list[str]]:
        """Its exit code, and the last lines of its output if it failed and they are not on the terminal."""
        command = [str(binary())]
        command += [word for config in run.point.configs for word in ("--config", config)]
        command += [word for setting in run.point.set for word in ("--set", setting)]
        command += [*self.sweep.options, "--resume=if-any"]
        if sys.stdout.isatty():
            return self.wait_for(command), []
        file = run.folder / "output.txt"
        try:
            run.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
            output = os.open(file, flags, 0o644)
        except OSError as error:
            raise LabError(f"cannot write {file}: {error}", 3) from error
        with os.fdopen(output, "wb") as stream:
            begin = os.fstat(output).st_size
            code = self.wait_for(command, stdout=stream, stderr=stream)
        if code in (0, PREEMPTED):
            return code, []
        with file.open("rb") as stream:
            stream.seek(begin)
            return code, stream.read().decode(errors="replace").splitlines()[-LAST_LINES:]

    def wait_for(self, command: list[str], **options: Any) -> int:
        """Runs a program in a process group of its own, to which signals are passed on."""
        parent = os.getpid()
        options = {"stdin": subprocess.DEVNULL, **options}
        child = subprocess.Popen(command, process_group=0, preexec_fn=lambda: die_with_parent(parent), **options)
        while (code := child.poll()) is None:
            number = self.signals.wait(None)
            if number != signal.SIGCHLD:
                self.stopped = True
                child.send_signal(number)
        return code if code >= 0 else PEER_LOST

    def wait_for_others(self) -> bool:
        """Until a run is done, or its process gone, which takes a minute to see of another host's. Returns False if a
        signal stopped that."""
        if not self.has_told_of_others:
            for run in self.open:
                owner = run.owner["text"] if run.owner else "its lock is new"
                say(f"{self.place(run)}: running in another process ({owner}); waiting for it")
            self.has_told_of_others = True
        with tempfile.TemporaryFile("w+") as folders, tempfile.TemporaryFile("w+") as states:
            json.dump([str(run.folder) for run in self.open], folders)
            folders.seek(0)
            if self.wait_for([str(binary()), "check", "--wait"], stdin=folders, stdout=states) != 0:
                return False
            states.seek(0)
            for run, state in zip(self.open, json.load(states), strict=True):
                run.state = state
        return True

    def is_stopped(self) -> bool:
        """Whether a stop signal arrived, also between two runs."""
        while (number := self.signals.wait(0)) is not None:
            self.stopped = self.stopped or number != signal.SIGCHLD
        return self.stopped

    def remaining(self) -> str:
        """Estimate for all processes together, if they continue; for a run that is about to leave the list."""
        elapsed, left = time.monotonic() - self.began, len(self.open) - 1
        text = f"; elapsed {duration(elapsed)}"
        return f"{text}, ETA {duration(elapsed / (self.at_first - left) * left)}" if left else text


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the first run
    parser = argparse.ArgumentParser(
        "sdp-train sweep",
        description="Trains a grid of experiments one after another; continues a stopped sweep.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, required=True, help="the sweep in YAML")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=V", help="override one key of every run (repeatable)"
    )
    parser.add_argument("--nproc", type=int, metavar="W", help="processes of each run")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="list the runs with progress, steps, FLOPs and planned memory (of owner sets by `window`); needs no data",
    )
    options = parser.parse_args(arguments)
    sweep = Sweep(options.config, options.set, options.nproc, options.dry_run)
    if options.dry_run:
        say(f"sweep {sweep.name}: {len(sweep.runs)} runs in {sweep.folder}{sweep.totals()}\n{sweep.describe()}")
    for note in sweep.notes:
        say(note)
    sweep.refuse_changed_runs()
    if options.dry_run:
        return 0
    sweep.write_json()
    return Runner(sweep).run()
