"""scripts/bench: what a call writes, its ratios, and that nothing that fails is hidden. No test depends on a time."""

import argparse
import json
import os
import pathlib

import pytest
from conftest import load_script

bench = load_script("bench")
from benchmark import contest, peers, report  # noqa: E402
from gpuhour.jobs import Context  # noqa: E402


def arguments(out: pathlib.Path, **more: object) -> argparse.Namespace:
    profile = out / "profile.json"
    out.mkdir()
    profile.write_text(json.dumps({"profiles": {"fp32": {"flops_per_s": 1e9}}}))
    values = {"models": ["resnet18_w8_b2"], "processes": [2], "rounds": 1, "steps": 10, "device": "cpu", "precision": None}
    values |= {"binary": pathlib.Path(os.environ["SDP_TRAIN"]), "baseline": None, "profile": profile, "out": out}
    return argparse.Namespace(**values | more)


def test_a_call_runs_all_and_a_peer_that_fails_is_told(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 of the second peer ends at once, and rank 0 waits for it."""
    environment = peers.rank_environment

    def broken(peer: peers.Peer, rank: int, *rest: int) -> dict[str, str]:
        found = environment(peer, rank, *rest)
        return found | {"PYTHONPATH": str(tmp_path)} if rank == 1 and peer.form == "foreach" else found

    monkeypatch.setattr(peers, "rank_environment", broken)
    chosen = [peers.Peer("ddp-fused"), peers.Peer("ddp-foreach")]
    assert bench.run(arguments(tmp_path / "out", peers=chosen), tmp_path) == 1
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    [case] = results["cases"]
    runs = {run["label"]: run for run in case["runs"]}
    failed = runs.pop("PyTorch DDP, foreach")
    assert "rank 1 ended with 1" in failed["error"] and "benchmark" in failed["error"] and "ms" not in failed
    assert [(run["side"], run["variant"]) for run in runs.values()] == [
        ("ours", "ddp"), ("ours", "sharded"), ("ours", "half"), ("peer", "ddp-fused")]  # fmt: skip
    for run in runs.values():
        assert run["error"] == "" and len(run["rounds"]) == 1 and len(run["rounds"][0]["step_ms"]) == 1
        assert set(run["parts_ms"]) == {"forward", "backward", "exchange", "optimizer"}
        assert run["process_bytes"] > 2**20
        assert run["share_of_product_rate"] == pytest.approx(run["flops_per_s"] / 1e9)
        assert run["to_fastest_peer"] == pytest.approx(run["ms"] / runs["PyTorch DDP, fused"]["ms"])
    text = (tmp_path / "out" / "results.md").read_text()
    assert "rank 1 ended with 1" in text and all(f"| {label} " in text for label in runs)


def measured(*step_ms: float, parameters: int = 7) -> dict:
    parts = dict.fromkeys(report.PARTS, 1.0)
    return {"step_ms": [*step_ms], "parts_ms": parts, "process_bytes": [5, 9], "parameters": parameters,
            "flops": 4e6, "dense_flops": 8e6}  # fmt: skip


def a_run(side: str, variant: str, *rounds: dict, error: str = "") -> dict:
    return {"label": f"{side}, {variant}", "side": side, "variant": variant, "rounds": [*rounds], "error": error}


def a_case(*runs: dict) -> dict:
    return {"model": "m", "processes": 2, "threads": 1, "loads": [0.0], "runs": [*runs], "left_out": []}


def test_ratios_are_those_of_medians() -> None:
    ours = a_run("ours", "ddp", measured(9, 10, 30), measured(20), measured(60))
    peer = a_run("peer", "ddp-fused", measured(40), measured(25), measured(30))
    slower = a_run("peer", "ddp-foreach", measured(50), measured(50), measured(50))
    report.summarize(a_case(ours, peer, slower), rate=1e9, devices=2)
    assert (ours["ms"], ours["range_ms"], ours["process_bytes"]) == (20, [10, 60], 9)
    assert (ours["to_fastest_peer"], slower["to_fastest_peer"]) == (pytest.approx(20 / 30), pytest.approx(50 / 30))
    assert (slower["to_own_whole"], ours["flops_per_s"], ours["share_of_product_rate"]) == (2.5, 2e8, 0.1)


def test_what_is_slower_than_before_or_another_model_is_a_problem() -> None:
    case = a_case(
        a_run("ours", "ddp", measured(103.1)), a_run("before", "ddp", measured(100)),
        a_run("ours", "sharded", measured(102.9)), a_run("before", "sharded", measured(100)),
        a_run("peer", "ddp-fused", measured(1, parameters=8)), a_run("peer", "fsdp2-fused", error="planted"),
    )  # fmt: skip
    found = report.problems([report.summarize(case, 0, 1)])
    assert [problem.partition(": ")[2].partition(" ")[0:1] for problem in found] == [("ours,",), ("peer,",), ("peer,",)]
    assert "1.031" in found[0] and "8 parameters" in found[1] and "planted" in found[2]


def test_turns_change_order_and_what_failed_is_not_run_again(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = []

    def call(name: str) -> dict:
        began.append(name)
        if name == "bad" and began.count("bad") == 2:
            raise RuntimeError("planted")
        return measured(1)

    runs = [a_run("ours", name) | {"label": name} for name in ("a", "bad", "b")]
    calls = {name: lambda name=name: call(name) for name in ("a", "bad", "b")}
    monkeypatch.setattr(contest.Contest, "contestants", lambda self: (runs, calls, []))
    here = contest.Contest(Context(tmp_path, tmp_path, "cpu", {}), "resnet18", 2, "fp32", 10, tmp_path, None, [])
    case = here.run(3, lambda line: None)
    assert began == ["a", "bad", "b", "b", "bad", "a", "a", "b"]
    assert [(len(run["rounds"]), run["error"]) for run in case["runs"]] == [(3, ""), (1, "RuntimeError: planted"), (3, "")]
