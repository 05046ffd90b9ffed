"""The command line: exit codes, messages, rank variables, output on a terminal and elsewhere, `doctor`."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys

import harness


def test_usage_errors(tmp_path):
    assert "--config" in harness.run(expect=2).stderr
    harness.run("--no-such-option", expect=2)
    assert ".json" in harness.run("doctor", "--save", "profile", expect=2).stderr
    assert re.match(r"sdp-train \d+\.\d+\.\d+", harness.run("--version").stdout)
    for words in (["x.yaml"], ["train", "--config", "x.yaml"], ["run", "x.yaml"]):
        assert "sdp-train --config" in harness.run(*words, expect=2).stderr


def test_a_folder_inside_of_a_run_names_the_run(tmp_path, data):
    run_dir = harness.train(tmp_path, "run", data, 1, train={"max_steps": 1})
    for command, inside in (("eval", "checkpoints"), ("eval", "checkpoints/step-00000001"), ("analyze", "checkpoints")):
        refused = harness.run(command, "--run", run_dir / inside, expect=2).stderr
        assert f"--run {run_dir}\n" in refused


def test_smoke_runs_everything_and_keeps_nothing(tmp_path, data):
    config = harness.write_config(tmp_path, "tried", data, train={"max_steps": 1000}, eval={"recalibrate_batches": 50})
    files = lambda: sorted(tmp_path.rglob("*"))
    before = files()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    for processes in (1, 2):
        result = harness.run("--config", config, "--nproc", processes, "--smoke", env={"TMPDIR": str(temporary)})
        assert "step 2/2" in result.stdout and "assembled full model" in result.stdout
        assert "export" not in result.stdout  # the run is gone
    temporary.rmdir()
    assert files() == before
    harness.run("--config", config, "--smoke", "--resume", expect=2)
    # A test that was killed does not block the next one.
    left = temporary / f"sdp-train-smoke-{os.getuid()}" / "tried" / "checkpoints" / "step-00000002"
    left.mkdir(parents=True)
    harness.run("--config", config, "--nproc", 1, "--smoke", env={"TMPDIR": str(temporary)})
    assert not left.exists()


def test_output_that_cannot_be_written_ends_with_3(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data)
    for command in ("spec >/dev/full", f"plan --config {config} >/dev/full", f"plan --json --config {config} >&-"):
        shell = ["sh", "-c", f"exec {harness.BINARY} {command}"]
        result = subprocess.run(shell, env=harness.environment(), capture_output=True, text=True, timeout=60)
        assert result.returncode == 3 and "standard output" in result.stderr, result


def test_torchrun_starts_the_ranks(tmp_path, data):
    """torchrun itself, with its own store, gives the same result as the launcher."""
    config = harness.write_config(tmp_path, "torchrun", data, train={"max_steps": 3})
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python",
         harness.BINARY, "--config", config],
        env=harness.environment(), check=True, timeout=300, capture_output=True,
    )
    ours = harness.train(tmp_path, "launcher", data, 2, train={"max_steps": 3})
    assert harness.trace_losses(tmp_path / "runs" / "torchrun") == harness.trace_losses(ours)


def test_a_terminal_shows_one_line_and_a_pipe_plain_lines(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, train={"max_steps": 6, "log_every_steps": 2})
    plain = harness.run("--config", config, "--nproc", 1).stdout
    assert "\r" not in plain and "\x1b" not in plain and len(re.findall(r"^step \d+/6 .*loss", plain, re.M)) == 3
    leader, follower = pty.openpty()
    process = harness.start("--config", config, "--set", "name=shown", "--nproc", 1, stdout=follower, stderr=follower)
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # of a terminal whose last writer has ended
        while chunk := os.read(leader, 4096):
            shown += chunk
    assert process.wait(timeout=300) == 0 and b"\r" in shown and b"100%" in shown


def test_warnings_for_settings_without_effect_and_for_the_plan_once(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, train={"max_steps": 1}, optimizer={"beta1": 0.8},
                                  subnetwork={"coverage": "1/4"})
    printed = harness.run("--config", config, "--nproc", 2).stderr
    assert re.search(r"warning: .*optimizer\.beta1", printed)
    warnings = harness.plan_of(tmp_path / "runs" / "run")["warnings"]
    assert warnings and all(printed.count(warning) == 1 for warning in warnings)


def doctor(*arguments, expect):
    """Which checks passed, failed or were skipped is told in JSON; each as it begins."""
    result = harness.run("doctor", "--device", "cpu", "--json", *arguments, expect=expect, env={"OMP_NUM_THREADS": "1"})
    found = json.loads(result.stdout)
    checks = {check["check"]: check for check in found["checks"]}
    for check in ("exchange", "masked step", "device rates", "run folder"):
        assert result.stderr.count(f"checking {check}\n") == 1
    assert found["passed"] == (expect == 0)
    return found, checks, {name: check["status"] for name, check in checks.items()}


def test_doctor_checks_two_processes_and_saves_their_profile(tmp_path):
    run, profile = tmp_path / "run", tmp_path / "profile.json"
    run.mkdir()
    found, _, status = doctor("--nproc", "2", "--output", run, "--save", profile, expect=0)
    assert found["processes"] == 2 and [rank["rank"] for rank in found["ranks"]] == [0, 1]
    assert all(rank["device"] == "CPU" and rank["threads"] == 1 and rank["interface"] == "lo" for rank in found["ranks"])
    checks = ["versions", "devices", "network", "exchange", "masked step", "device rates", "exchange rates", "profile"]
    assert all(status[check] == "PASS" for check in [*checks, "run folder"]), status
    assert list(run.iterdir()) == []
    # The plan uses the profile's rates for the run's precision.
    config = harness.write_config(tmp_path, "planned", tmp_path)
    for precision in ("fp32", "bf16"):
        settings = harness.sets(f"train.precision={precision}")
        planned = harness.run_json("plan", "--config", config, "--device", profile, *settings)["forecast"]
        rates = ("flops_per_s", "memory_bytes_per_s", "inside_bytes_per_s", "launch_s", "memory_bytes")
        assert all(planned["device"][rate] == found["profiles"][precision][rate] for rate in rates)
        assert planned["device"]["times"] == "measured rates" and planned["methods"][0]["step_ms"] > 0


def test_doctor_fails_for_a_wrong_folder_and_checks_the_rest():
    _, checks, status = doctor("--nproc", 1, "--output", "/proc", expect=1)
    assert [name for name in status if status[name] == "FAIL"] == ["run folder"]
    assert "/proc" in checks["run folder"]["detail"] and checks["run folder"]["advice"]
    assert status["network"] == "SKIP" and "profile" not in checks
