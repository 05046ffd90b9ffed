"""`doctor` as its users start it: what it checks and saves, and its exit code for an unusable folder."""

import json

import harness


def doctor(*arguments, expect):
    result = harness.run("doctor", "--device", "cpu", "--json", *arguments, expect=expect, env={"OMP_NUM_THREADS": "1"})
    found = json.loads(result.stdout)
    return found, {check["check"]: check for check in found["checks"]}


def test_two_processes_and_the_profile_they_save(tmp_path):
    run, profile = tmp_path / "run", tmp_path / "profile.json"
    run.mkdir()
    found, checks = doctor("--nproc", "2", "--output", run, "--save", profile, expect=0)
    assert found["passed"] and found["processes"] == 2
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    assert all(rank["device"] == "CPU" and rank["threads"] == 1 and rank["interface"] == "lo" for rank in found["ranks"])
    for check in ["versions", "devices", "network", "exchange", "masked step", "device rates", "exchange rates", "profile", "run folder"]:
        assert checks[check]["status"] == "PASS", checks[check]
    assert list(run.iterdir()) == []

    # The plan uses the profile's rates for the run's precision.
    config = harness.write_config(tmp_path, "planned", tmp_path)
    for precision in ("fp32", "bf16"):
        rates = found["profiles"][precision]
        settings = harness.sets(f"train.precision={precision}")
        planned = harness.run_json("plan", "--config", config, "--device", profile, *settings)["forecast"]
        for rate in ("flops_per_s", "memory_bytes_per_s", "inside_bytes_per_s", "launch_s", "memory_bytes"):
            assert planned["device"][rate] == rates[rate]
        assert planned["device"]["times"] == "measured rates"
        assert planned["methods"][0]["step_ms"] > 0


def test_a_wrong_folder_fails_and_the_rest_is_checked():
    result = harness.run("doctor", "--device", "cpu", "--json", "--nproc", 1, "--output", "/proc", expect=1)
    found = json.loads(result.stdout)
    checks = {check["check"]: check for check in found["checks"]}
    for check in ("exchange", "masked step", "device rates", "run folder"):  # told as it begins
        assert result.stderr.count(f"checking {check}\n") == 1
    assert not found["passed"]
    assert [name for name, check in checks.items() if check["status"] == "FAIL"] == ["run folder"]
    assert "/proc" in checks["run folder"]["detail"] and checks["run folder"]["advice"]
    assert checks["network"]["status"] == "SKIP" and "profile" not in checks
