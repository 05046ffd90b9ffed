"""Jobs within a budget of seconds. Finished jobs are recorded, so that the next call continues with the rest."""

import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable

EARLIER = pathlib.Path("docs/results/gpu/results.json")  # of an earlier call
GRACE_S = 15  # from SIGTERM to SIGKILL, for a run to save a checkpoint and end
PR_SET_PDEATHSIG = 1  # linux/prctl.h
PRCTL = ctypes.CDLL(None).prctl
NVIDIA_SMI = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem", "--format=csv,noheader", "--id=0"]


class OutOfTime(Exception):
    """The job's time limit or the rest of the budget is used up."""


class Unfinished(Exception):
    """The job stopped cleanly and continues at the next call."""


class LeftOut(Exception):
    """The job needs something that is missing here. Another machine or pack may have it."""


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
    work: Callable[["Context"], Iterable[Row]]  # the rows that it yields remain if it fails later
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
        self.deadline = float("inf")
        self.log = state / "log"
        self.started: list[subprocess.Popen] = []

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    def device_now(self) -> str:
        """A GPU's name, driver, clock, highest clock and memory clock at this moment."""
        if not self.on_gpu:
            return f"CPU, {os.cpu_count()} cores"
        path = {"PATH": f"{self.environment['PATH']}:/usr/local/nvidia/bin"}
        try:
            told = subprocess.run(NVIDIA_SMI, env=self.environment | path, stdout=subprocess.PIPE, text=True, timeout=10)
            return told.stdout.strip()
        except (OSError, subprocess.SubprocessError) as error:
            return f"GPU, nvidia-smi failed: {type(error).__name__}"

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
        """Starts a program in its own process group; both outputs go to the log. It does not outlive this process."""

        def prepare() -> None:
            PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)
            if limits:
                limits()

        with log.open("ab") as out:
            out.write(("$ " + " ".join(map(str, command)) + "\n").encode())
            out.flush()
            process = subprocess.Popen(
                [str(part) for part in command], stdout=out, stderr=subprocess.STDOUT, cwd=self.home,
                env=self.environment | (env or {}), process_group=0, preexec_fn=prepare,
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

    def run(self, command, *, log_name: str = "job", env=None) -> str:
        """Runs a program to its end and returns its output; an exit code other than 0 is an error."""
        log = self.log / f"{log_name}.txt"
        begin = log.stat().st_size if log.exists() else 0
        code = self.wait(self.start(command, log=log, env=env))
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
    """The state of each job, in a file that is updated at every change. Without that file, it begins with those of an earlier
    call on another machine: what is done there is done, and everything else is open, its rows kept until it runs again."""

    def __init__(self, file: pathlib.Path, earlier: pathlib.Path | None = None, commit: str = ""):
        self.file = file
        self.commit = commit
        self.jobs: dict[str, dict] = json.loads(file.read_text()) if file.exists() else {}
        if not file.exists() and earlier and earlier.exists():
            self.jobs = json.loads(earlier.read_text())
            self.open_again(lambda key: self.jobs[key]["status"] != "done")

    def open_again(self, is_wanted: Callable[[str], bool]) -> None:
        for key in filter(is_wanted, self.jobs):
            self.jobs[key]["status"] = "open again"

    def status(self, job: Job) -> str:
        return self.jobs.get(job.key, {}).get("status", "not begun")

    def is_open(self, job: Job) -> bool:
        return self.status(job) in ("not begun", "unfinished", "open again")

    def put(self, job: Job, status: str, seconds: float, rows: list[Row], device: str) -> None:
        spent = self.jobs[job.key]["seconds"] if self.status(job) == "unfinished" else 0.0
        self.jobs[job.key] = {
            "status": status, "seconds": round(spent + seconds, 1), "rows": [dataclasses.asdict(row) for row in rows],
            "commit": self.commit, "device": device,
        }
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.jobs, indent=1) + "\n")
        temporary.replace(self.file)


def run_job(job: Job, context: Context, ledger: Ledger, budget_end: float) -> str:
    """Runs the job and returns its status: done, left out, failed, too slow, or unfinished when the budget is used up."""
    began = time.monotonic()
    context.deadline = min(began + job.limit_s, budget_end)
    context.log = context.state / "logs" / job.key.replace("/", "-").replace(" ", "_")
    context.log.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    try:
        for row in job.work(context):
            rows.append(row)
        status = "failed" if any(row.verdict == "FAIL" for row in rows) else "done"
    except Unfinished as stopped:
        status = "unfinished"
        rows.append(Row(job.name, str(stopped)))
    except LeftOut as reason:
        status = "left out"
        rows.append(Row(job.name, str(reason)))
    except OutOfTime as late:
        is_cut_by_budget = budget_end - time.monotonic() <= GRACE_S + 5
        status = "unfinished" if is_cut_by_budget else "too slow"
        rows.append(Row(job.name, str(late), "" if is_cut_by_budget else "FAIL"))
    except Exception as error:  # a failing job must not stop the others
        (context.log / "error.txt").write_text(traceback.format_exc())
        status = "failed"
        rows.append(Row(job.name, f"{type(error).__name__}: {error}", "FAIL"))
    finally:
        context.end_all()
    ledger.put(job, status, time.monotonic() - began, rows, context.device_now())
    return status


def run_jobs(jobs: list[Job], context: Context, ledger: Ledger, budget_end: float, after_each: Callable[[], None],
             say=print) -> None:
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
        after_each()
        say(f"{job.key}: {status} after {ledger.jobs[job.key]['seconds']:.0f} s", flush=True)
