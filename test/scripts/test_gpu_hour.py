"""scripts/gpu_hour: the effect of a time budget on jobs, and the figures read from files."""

import json
import signal
import time

import numpy as np
import pytest
from conftest import SCRIPTS  # noqa: F401: puts scripts/ on the path

from gpuhour import images, steps
from gpuhour.jobs import GRACE_S, Context, Job, Ledger, Row, Unfinished, judged, run_jobs
from gpuhour.runs import largest_difference


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path, tmp_path / "state", "cpu", {"PATH": "/usr/bin:/bin"})


def job(name, work, estimate_s=1.0, limit_s=100.0, **more):
    return Job("stage", name, estimate_s, limit_s, work, **more)


def call(context, jobs, budget_s):
    """One call of the script: statuses by name, and the jobs that began."""
    began = []
    ledger = Ledger(context.state / "results.json")
    recording = [Job(j.stage, j.name, j.estimate_s, j.limit_s, lambda c, j=j: began.append(j.name) or j.work(c),
                     j.takes_what_is_left) for j in jobs]
    context.state.mkdir(exist_ok=True)
    run_jobs(recording, context, ledger, time.monotonic() + budget_s, say=lambda *_, **__: None)
    return {j.name: Ledger(context.state / "results.json").status(j) for j in jobs}, began


def test_a_job_that_does_not_fit_waits_for_the_next_call_and_shorter_ones_go_on(context):
    jobs = [job("first", lambda _: [Row("a", "1")]), job("long", lambda _: [Row("b", "2")], estimate_s=500),
            job("short", lambda _: [Row("c", "3")])]
    assert call(context, jobs, budget_s=60) == ({"first": "done", "long": "not begun", "short": "done"}, ["first", "short"])
    assert call(context, jobs, budget_s=600) == ({"first": "done", "long": "done", "short": "done"}, ["long"])


def test_a_job_that_breaks_or_fails_does_not_take_the_others_along(context):
    def breaks(_):
        raise ValueError("planted")

    jobs = [job("breaks", breaks), job("fails", lambda _: [judged("x", "1", True), judged("y", "2", False)]),
            job("good", lambda _: [judged("z", "3", True)])]
    assert call(context, jobs, 100)[0] == {"breaks": "failed", "fails": "failed", "good": "done"}
    rows = json.loads((context.state / "results.json").read_text())["stage/breaks"]["rows"]
    assert rows[0]["verdict"] == "FAIL" and "planted" in rows[0]["value"]


def test_what_the_budget_cuts_is_begun_again_and_what_is_too_slow_is_not(context):
    sleeps = lambda c: c.run(["sleep", "60"])
    slow = [job("slow", sleeps, limit_s=GRACE_S + 0.3)]
    assert call(context, slow, 1000)[0] == {"slow": "too slow"}
    assert call(context, slow, 1000)[1] == []
    cut = [job("cut", sleeps)]
    assert call(context, cut, GRACE_S + 1.3)[0] == {"cut": "unfinished"}
    assert call(context, cut, GRACE_S + 1.3)[1] == ["cut"]


def test_a_run_that_stopped_in_good_order_goes_on(context):
    calls = []

    def learns(_):
        calls.append(1)
        if len(calls) < 3:
            raise Unfinished("step 5")
        return [Row("accuracy", "1")]

    jobs = [job("learns", learns, estimate_s=1000, takes_what_is_left=True)]
    assert [call(context, jobs, 100)[0]["learns"] for _ in range(4)] == ["unfinished", "unfinished", "done", "done"]
    assert len(calls) == 3


def test_nothing_outlives_a_call_that_is_ended(context):
    started = []

    def work(context):
        started.append(context.start(["sleep", "1000"], log=context.log / "job.txt"))
        raise SystemExit(143)  # as SIGTERM does

    with pytest.raises(SystemExit):
        call(context, [job("ended", work)], 100)
    assert started[0].poll() == -signal.SIGTERM


def test_a_program_that_fails_is_told_with_its_last_line(context):
    context.state.mkdir()
    context.log, context.deadline = context.state, time.monotonic() + 100
    assert context.run(["sh", "-c", "echo one; echo two"]) == "one\ntwo\n"
    with pytest.raises(RuntimeError, match="(?s)exit code 3.*last words"):
        context.run(["sh", "-c", "echo first; echo last words >&2; exit 3"])


def trace_of(tmp_path, category, events):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": [
        {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": end - begin, "pid": 0, "tid": line}
        for name, line, begin, end in events] + [{"ph": "X", "cat": "other", "name": "x", "ts": 0, "dur": 1000}]}))
    return file


def test_idle_time_is_what_no_kernel_covers(tmp_path):
    trace = trace_of(tmp_path, "kernel", [("gemm", 7, 100, 140), ("copy", 8, 130, 150), ("gemm", 7, 170, 200)])
    span, busy, kernels = steps.kernels_of(trace, on_gpu=True)
    assert (span, busy) == (100, 80)
    assert kernels == [("gemm", 70), ("copy", 20)]


def test_on_a_cpu_an_operation_within_another_is_not_counted_twice(tmp_path):
    trace = trace_of(tmp_path, "cpu_op", [("linear", 1, 0, 50), ("mm", 1, 10, 40), ("add", 1, 60, 70), ("mm", 2, 0, 5)])
    assert steps.kernels_of(trace, on_gpu=False) == (70, 60, [("linear", 50), ("add", 10), ("mm", 5)])


def test_losses_are_compared_by_the_largest_relative_difference():
    assert largest_difference([1.0, 2.0, 4.2], [1.0, 2.0, 4.0]) == pytest.approx(0.05)
    with pytest.raises(RuntimeError):
        largest_difference([1.0], [1.0, 2.0])


def test_images_come_back_in_order_with_their_labels(tmp_path):
    """Each image has one color, which JPEG preserves up to rounding; the last sheet is not full."""
    rng = np.random.default_rng(0)
    written = {}
    for name in images.FILES:
        count = 230
        labels = rng.integers(0, 10, (count, 1), dtype=np.uint8)
        colors = np.repeat(rng.integers(0, 256, (count, 1), dtype=np.uint8), 3072, axis=1)
        written[name] = np.concatenate([labels, colors], axis=1)
        (tmp_path / name).write_bytes(written[name].tobytes())
    images.pack_images(tmp_path, tmp_path / "images.zip", quality=95)
    folder = images.unpack_images(tmp_path / "images.zip", tmp_path / "back")
    for name, records in written.items():
        back = np.fromfile(folder / name, dtype=np.uint8).reshape(-1, 3073)
        assert back.shape == records.shape and (back[:, 0] == records[:, 0]).all()
        assert np.abs(back[:, 1:].astype(int) - records[:, 1:]).max() <= 3
