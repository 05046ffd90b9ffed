"""Stops and faults in a run of two processes: exit codes, which rank is named, and the time until the other rank ends."""

import hashlib
import json
import pathlib
import resource
import shutil
import signal
import time
from collections.abc import Iterator

from gpuhour.jobs import Context, Row, judged
from gpuhour.parity import small_spec
from gpuhour.runs import Ranks, lines_of, write_spec

PEER_LOST, PREEMPTED = 4, 75
LONG, SHORT = 1_000_000, 40
TIMEOUT_S = 10  # limit of an exchange when a process hangs
WITHIN_S = 30


def spec_of(context: Context, name: str, steps: int) -> tuple[dict, pathlib.Path]:
    folder = context.scratch("faults")
    spec = small_spec("resnet", "bsdp", "fp32", folder)
    spec["name"] = name
    spec["train"] |= {"max_steps": steps, "collective_timeout_s": TIMEOUT_S, "device": context.device}
    return spec, folder / name


def started(context: Context, name: str, backend: str, steps: int = LONG, more=(),
            resumes: bool = False, **options) -> tuple[Ranks, pathlib.Path]:
    spec, run_dir = spec_of(context, f"{name}-{backend}", steps)
    if not resumes:
        shutil.rmtree(run_dir, ignore_errors=True)
    arguments = ["--config", write_spec(context.scratch("faults"), spec), "--resume=if-any", *more]
    return Ranks(context, arguments, 2, backend=backend, label=f"{name}-{backend}", **options), run_dir


def rank_1_is_named(ranks: Ranks) -> bool:
    return "rank 1" in ranks.text(0).lower()


def outcome(name: str, ranks: Ranks, backend: str, act) -> Row:
    """`act` disturbs rank 1; rank 0 must exit with 4 and name it."""
    began = time.monotonic()
    act()
    try:
        code = ranks.context.wait(ranks.processes[0], TIMEOUT_S + WITHIN_S)
    finally:
        seconds = time.monotonic() - began
        ranks.processes[1].kill()  # if stopped, it would not end by SIGTERM
    names = rank_1_is_named(ranks)
    return judged(f"{name}, {backend}", f"rank 0 ended with {code} after {seconds:.1f} s, rank 1 {'' if names else 'not '}named",
                  code == PEER_LOST and names)


def killed(context: Context, backend: str) -> list[Row]:
    ranks, run_dir = started(context, "kill", backend)
    ranks.wait_until_trained(run_dir, 5)
    return [outcome("kill -9 of rank 1", ranks, backend, ranks.processes[1].kill)]


def hanging(context: Context, backend: str) -> list[Row]:
    ranks, run_dir = started(context, "hang", backend)
    ranks.wait_until_trained(run_dir, 5)
    return [outcome("SIGSTOP of rank 1", ranks, backend, lambda: ranks.processes[1].send_signal(signal.SIGSTOP))]


def out_of_memory(context: Context, backend: str) -> list[Row]:
    """Rank 1 may use little memory: it must report the cause, and rank 0 must name rank 1."""

    def limited():  # enough to load the libraries and start threads, but not to train
        resource.setrlimit(resource.RLIMIT_DATA, (1200 << 20, 1200 << 20))

    environment = lambda rank: {"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.0001"} if rank == 1 else {}
    options = {"env_of": environment} if context.on_gpu else {"limits_of": lambda rank: limited if rank == 1 else None}
    more = ("--set", "model.width=64", "--set", "train.batch_size_per_worker=200")
    ranks, _ = started(context, "memory", backend, more=more, **options)
    began = time.monotonic()
    try:
        codes = ranks.wait(3 * WITHIN_S)
    finally:
        ranks.end()
    own = "memory" in ranks.text(1).lower() or "alloc" in ranks.text(1).lower()
    good = codes[0] == PEER_LOST and codes[1] not in (0, PEER_LOST) and own and rank_1_is_named(ranks)
    return [judged(f"out of memory on rank 1, {backend}",
                   f"exit codes {codes} after {time.monotonic() - began:.1f} s, cause {'' if own else 'not '}reported", good)]


def weights_of(run_dir: pathlib.Path) -> str:
    """A single hash of the newest checkpoint's weights and optimizer state."""
    folder = run_dir / "checkpoints" / (run_dir / "latest").read_text().strip()
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def resumed(context: Context, backend: str) -> Iterator[Row]:
    """SIGTERM in training, then --resume: the same bits as an uninterrupted run, with train.deterministic."""
    straight, straight_dir = started(context, "straight", backend, SHORT)
    ranks, run_dir = started(context, "stopped", backend, SHORT)
    ranks.wait_until_trained(run_dir, 5)
    began = time.monotonic()
    for process in ranks.processes:
        process.send_signal(signal.SIGTERM)
    stop_codes = ranks.wait()
    yield judged(f"SIGTERM, {backend}", f"exit codes {stop_codes} after {time.monotonic() - began:.1f} s",
                 stop_codes == [PREEMPTED] * 2)
    step = lines_of(run_dir, "checkpoint")[-1]["step"]
    again, _ = started(context, "stopped", backend, SHORT, resumes=True)
    codes = straight.wait() + again.wait()
    same = codes == [0] * 4 and weights_of(straight_dir) == weights_of(run_dir)
    yield judged(f"resumed from step {step} of {SHORT}, {backend}",
                 "the same bits" if same else f"exit codes {codes}, different weights", same)


def streamed(context: Context, backend: str) -> list[Row]:
    """Evaluates the assembled model as a whole and branch by branch, from the uninterrupted run of `resumed`."""
    run_dir = spec_of(context, f"straight-{backend}", SHORT)[1]
    if not (run_dir / "latest").exists():
        started(context, "straight", backend, SHORT)[0].wait()
    losses = []
    for mode in ("full", "streamed"):
        text = context.sdp("eval", "--run", run_dir, "--set", f"eval.mode={mode}", "--set", f"train.device={context.device}",
                           "--json", log_name=mode)
        losses.append(json.loads(text[text.index("{"):])["loss"])
    difference = abs(losses[0] - losses[1]) / losses[0]
    return [judged("evaluation whole and streamed", f"losses differ by {difference:.1e} (allowed 1e-05)", difference <= 1e-5)]
