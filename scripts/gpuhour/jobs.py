"""Jobs within a budget of seconds. Finished jobs are recorded, so that the next call continues with the rest."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable

GRACE_S = 15  # from SIGTERM to SIGKILL, for a run to save a checkpoint and end


class OutOfTime(Exception):
    """The job's time limit or the rest of the budget is used up."""


class Unfinished(Exception):
    """The job stopped cleanly and continues at the next call."""


@dataclasses.dataclass
class Row:
    """A row of the table. Verdict: "PASS", "FAIL", or "" for a number without a limit."""

    what: str
    value: str
    verdict: str = ""


def judged(what: str, value: str, good: bool) -> Row:
    return Row(what, value, "PASS" if good else "FAIL")


@dataclasses.dataclass
class Job:
    stage: str
    name: str
    estimate_s: float
    limit_s: float
    work: Callable[["Context"], list[Row]]
    takes_what_is_left: bool = False  # starts even if less time than its estimate is left, and continues at the next call

    @property
    def key(self) -> str:
        return f"{self.stage}/{self.name}"


class Context:
    """Everything a job needs: folders, the device, and programs that end with the job."""

    def __init__(self, home: pathlib.Path, state: pathlib.Path, device: str, environment: dict[str, str]):
        self.home = home
        self.state = state
        self.device = device
        self.environment = environment
        self.binary = home / "build" / "sdp-train"
        self.deadline = 0.0
        self.log = state / "log"
        self.started: list[subprocess.Popen] = []

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def parallel_runs(self) -> int:
        """Number of small runs at the same time when only their results matter."""
        return 6 if self.on_gpu else 1

    def scratch(self, name: str) -> pathlib.Path:
        folder = self.state / "scratch" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def fresh(self, name: str) -> pathlib.Path:
        """The same folder as scratch(), emptied: an interrupted job starts over."""
        shutil.rmtree(self.state / "scratch" / name, ignore_errors=True)
        return self.scratch(name)

    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def start(self, command, *, log: pathlib.Path, env=None, limits=None) -> subprocess.Popen:
        """Starts a program in its own process group; both outputs go to the log."""
        with log.open("ab") as out:
            out.write(("$ " + " ".join(map(str, command)) + "\n").encode())
            out.flush()
            process = subprocess.Popen(
                [str(part) for part in command], stdout=out, stderr=subprocess.STDOUT, cwd=self.home,
                env=self.environment | (env or {}), start_new_session=True, preexec_fn=limits,
            )
        self.started.append(process)
        return process

    def end_all(self) -> None:
        """Ends every program that was started."""
        for process in self.started:
            if process.poll() is None:
                end_group(process)
        self.started.clear()

    def wait(self, process: subprocess.Popen, limit_s: float = float("inf")) -> int:
        """Returns its exit code. At the job's deadline or the limit, ends the whole group and raises OutOfTime."""
        try:
            return process.wait(max(0.1, min(limit_s, self.left_s() - GRACE_S)))
        except subprocess.TimeoutExpired:
            end_group(process)
            raise OutOfTime(f"{process.args[0]} did not end in time") from None

    def run(self, command, *, log_name: str = "job", env=None, limits=None) -> str:
        """Runs a program to its end and returns its output; an exit code other than 0 is an error."""
        log = self.log / f"{log_name}.txt"
        begin = log.stat().st_size if log.exists() else 0
        code = self.wait(self.start(command, log=log, env=env, limits=limits))
        text = log.read_bytes()[begin:].decode(errors="replace").partition("\n")[2]
        if code != 0:
            raise RuntimeError(f"exit code {code}: {last_line(text)}")
        return text

    def sdp(self, *arguments, **options) -> str:
        return self.run([self.binary, *arguments], **options)


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no output"


def end_group(process: subprocess.Popen) -> None:
    for kind, patience_s in ((signal.SIGTERM, GRACE_S - 3), (signal.SIGKILL, 3)):
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            break
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue


class Ledger:
    """The state of each job, in a file that is updated at every change."""

    def __init__(self, file: pathlib.Path):
        self.file = file
        self.jobs: dict[str, dict] = json.loads(file.read_text()) if file.exists() else {}

    def status(self, job: Job) -> str:
        return self.jobs.get(job.key, {}).get("status", "not begun")

    def is_open(self, job: Job) -> bool:
        return self.status(job) in ("not begun", "unfinished")

    def put(self, job: Job, status: str, seconds: float, rows: list[Row]) -> None:
        spent = self.jobs.get(job.key, {}).get("seconds", 0.0)
        self.jobs[job.key] = {
            "status": status, "seconds": round(spent + seconds, 1), "rows": [dataclasses.asdict(row) for row in rows],
        }
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.jobs, indent=1) + "\n")
        temporary.replace(self.file)


def run_job(job: Job, context: Context, ledger: Ledger, budget_end: float) -> str:
    """Runs the job and returns its status: done, failed, too slow, or unfinished when the budget is used up."""
    began = time.monotonic()
    context.deadline = min(began + job.limit_s, budget_end)
    is_cut_by_budget = context.deadline == budget_end
    context.log = context.state / "logs" / job.key.replace("/", "-").replace(" ", "_")
    context.log.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    try:
        rows = job.work(context)
        status = "failed" if any(row.verdict == "FAIL" for row in rows) else "done"
    except Unfinished as stopped:
        status = "unfinished"
        rows = [Row(job.name, str(stopped))]
    except OutOfTime as late:
        status = "unfinished" if is_cut_by_budget else "too slow"
        rows = [Row(job.name, str(late), "" if is_cut_by_budget else "FAIL")]
    except Exception as error:  # a failing job must not stop the others
        (context.log / "error.txt").write_text(traceback.format_exc())
        status = "failed"
        rows = [Row(job.name, f"{type(error).__name__}: {error}", "FAIL")]
    finally:
        context.end_all()
    ledger.put(job, status, time.monotonic() - began, rows)
    return status


def run_jobs(jobs: list[Job], context: Context, ledger: Ledger, budget_end: float, say=print) -> None:
    """Runs jobs in order. A job whose estimate exceeds the remaining time waits for the next call; shorter ones still run."""
    for job in jobs:
        left_s = budget_end - time.monotonic()
        if not ledger.is_open(job):
            continue
        least_s = 2 * GRACE_S + 10 if job.takes_what_is_left else job.estimate_s + GRACE_S
        if left_s < least_s:
            continue
        say(f"{job.key}: about {job.estimate_s:.0f} s, {left_s:.0f} s left", flush=True)
        status = run_job(job, context, ledger, budget_end)
        say(f"{job.key}: {status} after {ledger.jobs[job.key]['seconds']:.0f} s", flush=True)
