"""scripts/gpu_hour: the effect of a time budget on jobs, what a call leaves, and the figures read from files."""

import dataclasses
import json
import os
import signal
import subprocess
import tarfile
import time

import numpy as np
import pytest
from conftest import load_script
from safetensors.numpy import load_file, save_file

gpu_hour = load_script("gpu_hour")
from gpuhour import images, pack, steps, suite  # noqa: E402
from gpuhour.jobs import GRACE_S, Context, Job, Ledger, Row, Unfinished, judged, run_jobs  # noqa: E402
from gpuhour.runs import largest_difference  # noqa: E402


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path, tmp_path / "state", "cpu", {"PATH": "/usr/bin:/bin"})


def job(name, work, estimate_s=1.0, limit_s=100.0, **more):
    return Job("stage", name, estimate_s, limit_s, work, **more)


def call(context, jobs, budget_s=100.0, write=lambda: None):
    """One call of the script: statuses by name, and the jobs that began."""
    began = []
    recording = [dataclasses.replace(j, work=lambda c, j=j: began.append(j.name) or j.work(c)) for j in jobs]
    context.state.mkdir(exist_ok=True)
    ledger = Ledger(context.state / "results.json")
    run_jobs(recording, context, ledger, time.monotonic() + budget_s, write, say=lambda *_, **__: None)
    return {j.name: Ledger(context.state / "results.json").status(j) for j in jobs}, began


def told(context, name):
    return json.loads((context.state / "results.json").read_text())[f"stage/{name}"]["rows"]


def test_a_job_waits_or_breaks_or_fails_without_the_others(context):
    def breaks(_):
        yield Row("first", "1")  # remains
        raise ValueError("planted")

    good = lambda _: [judged("z", "3", True)]
    jobs = [job("breaks", breaks), job("fails", lambda _: [judged("x", "1", True), judged("y", "2", False)]),
            job("good", good), job("long", good, estimate_s=500), job("short", lambda _: [Row("c", "3")])]
    expected = {"breaks": "failed", "fails": "failed", "good": "done", "long": "not begun", "short": "done"}
    assert call(context, jobs, 60) == (expected, ["breaks", "fails", "good", "short"])
    first, broken = told(context, "breaks")
    assert (first["what"], broken["what"], broken["verdict"]) == ("first", "breaks", "FAIL")
    assert "planted" in broken["value"]
    assert call(context, jobs, 600) == (expected | {"long": "done"}, ["long"])


def test_what_the_budget_cuts_is_begun_again_and_what_is_too_slow_is_not(context):
    sleeps = lambda c: c.run(["sleep", "60"])
    for name, limit_s, budget_s, status, begun_again in (
        ("slow", GRACE_S + 0.3, 1000, "too slow", []), ("cut", 100, GRACE_S + 1.3, "unfinished", ["cut"]),
    ):  # fmt: skip
        jobs = [job(name, sleeps, limit_s=limit_s)]
        assert call(context, jobs, budget_s)[0] == {name: status}
        assert call(context, jobs, budget_s)[1] == begun_again


def test_a_run_that_stopped_in_good_order_goes_on(context):
    endings = [Unfinished("step 5"), Unfinished("step 9"), None]

    def learns(_):
        if ending := endings.pop(0):
            raise ending
        return [Row("accuracy", "1")]

    jobs = [job("learns", learns, estimate_s=1000, takes_what_is_left=True)]
    assert [call(context, jobs)[0]["learns"] for _ in range(4)] == ["unfinished", "unfinished", "done", "done"]


def test_what_is_left_out_here_is_open_on_the_next_machine(context, monkeypatch):
    needs = {"lacks": {"pytest": pytest.__version__, "no_such_library": "1.0"}, "other": {"pytest": "1000.0"}}
    monkeypatch.setattr(suite, "tests_of", lambda _: {name: {"needs": libraries} for name, libraries in needs.items()})
    jobs = [job(name, lambda c, name=name: suite.run_test(c, name)) for name in needs]
    left_out = {name: "left out" for name in needs}
    assert [call(context, jobs) for _ in range(2)] == [(left_out, list(needs)), (left_out, [])]
    assert told(context, "lacks") == [{"what": "lacks", "value": "this Python has no no_such_library", "verdict": ""}]
    assert all(text in told(context, "other")[0]["value"] for text in ("pytest 1000.0", pytest.__version__))
    assert Ledger(context.state / "elsewhere.json", context.state / "results.json").is_open(jobs[0])


def test_nothing_outlives_a_call_that_is_ended(context):
    started = []

    def work(context):
        started.append(context.start(["sleep", "1000"], log=context.log / "job.txt"))
        raise SystemExit(143)  # as SIGTERM does

    with pytest.raises(SystemExit):
        call(context, [job("ended", work)])
    assert started[0].poll() == -signal.SIGTERM


def test_results_are_written_after_every_job_in_few_files_within_their_limit(context, tmp_path):
    out, log = tmp_path / "out", context.state / "logs" / "job"
    seen = []
    jobs = [job(name, lambda _: seen.append(sorted(out.glob("*"))) or [Row("a", "1")]) for name in ("first", "second")]
    written = lambda: Ledger(context.state / "results.json", commit="abc")
    call(context, jobs, write=lambda: gpu_hour.write_results(context, jobs, written(), out))
    assert [[file.name for file in files] for files in seen] == [[], ["logs.tar.gz", "results.json", "table.md"]]
    entry = json.loads((out / "results.json").read_text())["stage/second"]
    assert (entry["status"], entry["device"]) == ("done", context.device_now())
    log.mkdir(parents=True)
    for n in range(8):
        (log / f"{n}.txt").write_bytes(os.urandom(3 << 20))
    (log / "small.txt").write_text("kept")
    (log / "huge.txt").write_bytes(bytes(gpu_hour.LOG_LIMIT_BYTES + 1))
    (context.state / "profile.json").write_text("{}")
    gpu_hour.write_results(context, [], written(), out)
    files = list(out.rglob("*"))
    assert sorted(file.name for file in files) == ["logs.tar.gz", "profile.json", "results.json", "table.md"]
    assert max(file.stat().st_size for file in files) <= 16 << 20
    names = tarfile.open(out / "logs.tar.gz").getnames()
    assert "logs/job/small.txt" in names and "logs/job/0.txt" in names and "logs/job/huge.txt" not in names


def test_on_a_new_machine_what_an_earlier_call_did_counts_and_what_failed_is_done_again(context, tmp_path):
    jobs = [job(name, lambda _: []) for name in ("good", "bad", "new")]
    earlier = tmp_path / "earlier.json"
    ledger = Ledger(earlier, commit="old")
    ledger.put(jobs[0], "done", 1, [Row("a", "1")], "GPU 1")
    ledger.put(jobs[1], "failed", 1, [judged("b", "2", False)], "GPU 1")
    context.state.mkdir()
    ledger = Ledger(context.state / "results.json", earlier, commit="new")
    assert [ledger.is_open(j) for j in jobs] == [False, True, True]
    ledger.put(jobs[1], "done", 2, [judged("b", "3", True)], "GPU 2")
    again = Ledger(context.state / "results.json", earlier, commit="new")
    assert [again.is_open(j) for j in jobs] == [False, False, True]
    entries = {name: (entry["commit"], entry["device"], entry["seconds"]) for name, entry in again.jobs.items()}
    assert entries == {"stage/good": ("old", "GPU 1", 1), "stage/bad": ("new", "GPU 2", 2)}


def test_a_pack_that_is_too_large_to_travel_is_refused(tmp_path, monkeypatch, capsys):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / ".gitignore").write_text("/ignored\n/folder/\n")
    for file, mebibytes in (("source", 3), ("ignored", 5), ("folder/data", 1)):
        (tmp_path / file).write_bytes(bytes(mebibytes << 20))
    pack.check_travel(tmp_path, folder)
    assert "4.0 MiB travel" in capsys.readouterr().out
    monkeypatch.setattr(pack, "TRAVEL_LIMIT_BYTES", 4 << 20)  # the rule for ignored files takes a few bytes more
    with pytest.raises(SystemExit, match="At most 4 MiB"):
        pack.check_travel(tmp_path, folder)
    assert not folder.exists()


def trace_of(category, events):
    return [{"ph": "X", "cat": category, "name": name, "ts": begin, "dur": end - begin, "pid": 0, "tid": line}
            for name, line, begin, end in events] + [{"ph": "X", "cat": "other", "name": "x", "ts": 0, "dur": 1000}]


def test_times_and_losses_that_are_read_from_files(tmp_path):
    """Idle time is what no kernel covers; on a CPU, the time of an operation within another is counted once."""
    trace = trace_of("kernel", [("gemm", 7, 100, 140), ("copy", 8, 130, 150), ("gemm", 7, 170, 200)])
    assert steps.kernels_of(steps.device_events(trace, on_gpu=True)) == (100, 80, [("gemm", 70), ("copy", 20)])
    trace = trace_of("cpu_op", [("linear", 1, 0, 50), ("mm", 1, 10, 40), ("add", 1, 60, 70), ("mm", 2, 0, 5)])
    assert steps.kernels_of(steps.device_events(trace, on_gpu=False)) == (70, 60, [("linear", 50), ("add", 10), ("mm", 5)])
    steps.write_host_times(trace, tmp_path / "host.txt")  # without what an operation calls
    lines = [line.split() for line in (tmp_path / "host.txt").read_text().splitlines()]
    assert lines == [["35.0", "us", "2", "mm"], ["20.0", "us", "1", "linear"], ["10.0", "us", "1", "add"]]
    assert largest_difference([1.0, 2.0, 4.2], [1.0, 2.0, 4.0]) == pytest.approx(0.05)
    with pytest.raises(RuntimeError):
        largest_difference([1.0], [1.0, 2.0])


def test_images_come_back_in_order_with_their_labels(tmp_path):
    """Each image is of one gray, which JPEG preserves up to rounding; the last sheet is not full."""
    rng = np.random.default_rng(0)
    written = {}
    for name in images.FILES:
        count = 230
        levels = rng.integers(0, 256, (count, 1, 1, 1), dtype=np.uint8)
        written[name] = {"images": np.tile(levels, (1, 32, 32, 3)), "labels": rng.integers(0, 10, count, dtype=np.uint8)}
        save_file(written[name], tmp_path / name)
    images.pack_images(tmp_path, tmp_path / "images.zip", quality=95)
    folder = images.unpack_images(tmp_path / "images.zip", tmp_path / "back")
    for name, arrays in written.items():
        back = load_file(folder / name)
        assert back["images"].shape == arrays["images"].shape and (back["labels"] == arrays["labels"]).all()
        assert np.abs(back["images"].astype(int) - arrays["images"]).max() <= 3
