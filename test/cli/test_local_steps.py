"""Local steps (exchange.every_steps): workers with values and optimizers of their own, and the exchange of what has changed,
compared with plain PyTorch loops (oracle.train_locally)."""

import shutil

import pytest
import torch

import harness
from comparison import OPTIMIZERS, REGIMES, train_and_compare
from small_models import LLAMA, MODELS, TOKENS, write_tokens

MLP = {"name": "mlp", "width": 24, "depth": 5, "hidden_width": 40}

RULES = {"rules": [{"match": "*.0", "coverage": "1/4", "masking": "backward"}, {"match": "*.1", "masking": "forward"}]}
CAPACITIES = {"coverage": "1", "capacities": ["1", "1", "1/2", "1/4"]}


@pytest.mark.parametrize("case,own", [
    *((case, {}) for case in range(8)), (3, RULES), (4, RULES), (2, CAPACITIES),
    (7, CAPACITIES | {"rules": RULES["rules"][1:]}),
])
def test_local_steps_are_the_mask_oracle(tmp_path, data, case, own):
    """In every regime: clipping, accumulation, groups, the average, warm-up, small buckets, all states, 1 to 4 processes."""
    construction, masking = REGIMES[case % 4]
    groups = [{"match": "*bias", "lr_factor": 2.0}] if case % 2 else []
    train_and_compare(
        tmp_path, data, (1, 2, 4)[case % 3], model=MLP if case < 4 else {},
        subnetwork={
            "workers": 4, "coverage": ("2/4", "3/4")[case // 4], "construction": construction, "masking": masking, **own,
        },
        optimizer={
            **OPTIMIZERS[("adamw_smooth", "nesterov")[case % 2]], "clip_norm": (0.5, 0)[case % 2], "groups": groups,
            "ema_decay": (0, 0.7)[case % 2],
        },
        exchange={
            "every_steps": 2 + case % 2, "warmup_steps": case // 2 % 2, "inner_state": ("keep", "average", "reset")[case % 3],
            "outer": {"lr": 0.5, "momentum": 0.8, "nesterov": case % 2 == 0},
        },
        train={"max_steps": 7, "accumulate_steps": 1 + case // 4, "bucket_megabytes": 0.01, "batch_size_per_worker": 4},
    )


@pytest.mark.parametrize("outer", [{}, {"lr": 1, "momentum": 0, "nesterov": False}])
def test_full_coverage_is_diloco_and_local_sgd(tmp_path, outer):
    run = train_and_compare(
        tmp_path, write_tokens(tmp_path / "tokens"), 3, model=MODELS["gpt2"], subnetwork={"workers": 3, "coverage": "1"},
        optimizer=OPTIMIZERS["adamw_smooth"], exchange={"every_steps": 3, "outer": outer}, train={"max_steps": 6},
    )
    for line in harness.records(run, "train"):
        assert line["anchor_distance"] > line["mean_change_norm"] > 0


@pytest.mark.parametrize("construction,masking", REGIMES)
def test_an_exchange_at_every_step_averages_gradients(tmp_path, data, construction, masking):
    sections = {
        "subnetwork": {"workers": 4, "coverage": "2/4", "construction": construction, "masking": masking},
        "model": MLP, "optimizer": OPTIMIZERS["nesterov"], "train": {"max_steps": 6},
    }
    each = {"every_steps": 1, "outer": {"lr": 1, "momentum": 0, "nesterov": False}}
    runs = [
        harness.train(tmp_path, "gradients", data, 2, **sections),
        harness.train(tmp_path, "changes", data, 2, **sections, exchange=each),
    ]
    expected, actual = (harness.trace_losses(run) for run in runs)
    assert actual == pytest.approx(expected, rel=0, abs=1e-12)
    expected, actual = (harness.checkpoint_pieces(run, 6) for run in runs)
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        assert (actual[key] - values).abs().max() < 1e-12, key


FROZEN_MLPS = {"match": "*.mlp", "coverage": "1/4", "masking": "backward"}
PARTS = {"unit": "branch", "rules": [FROZEN_MLPS, {"match": "*.0.*", "coverage": "1/4"}]}


@pytest.mark.parametrize("processes,coverage,construction,masking,own", [
    (4, "2/4", "neuron", "backward", {"precision": "bf16"}), (2, "3/4", "neuron", "forward", {"accumulate_steps": 2}),
    (1, "2/4", "block", "backward", {}), (4, "1", "block", "forward", {"precision": "bf16", "release_gradients": False}),
    (4, PARTS, "block", "forward", {}), (4, PARTS | {"exchange": {}}, "neuron", "forward", {"accumulate_steps": 2}),
    (2, CAPACITIES, "neuron", "backward", {}), (4, CAPACITIES | {"exchange": {}}, "neuron", "forward", {"precision": "bf16"}),
])
def test_memory_and_bytes_are_planned(tmp_path, processes, coverage, construction, masking, own):
    subnetwork = {"coverage": coverage} if isinstance(coverage, str) else {"coverage": "3/4"} | coverage
    exchange = subnetwork.pop("exchange", {"every_steps": 3, "inner_state": "average"})
    run = harness.train(
        tmp_path, "run", write_tokens(tmp_path / "tokens"), processes, model=MODELS["llama"],
        data={"name": "tokens", "sequence_length": TOKENS},
        subnetwork={"workers": 4, "construction": construction, "masking": masking, **subnetwork},
        optimizer={"name": "adamw", "ema_decay": 0.9}, exchange=exchange,
        train={"max_steps": 6, "log_every_steps": 3, "precision": "fp32"} | own,
    )
    planned = harness.plan_of(run)["per_process"]
    for line in harness.records(run, "train"):
        for kind, key in (("optimizer", "optimizer"), ("weights", "parameter")):
            assert line["memory"][f"{kind}_bytes"] == [cost[f"{key}_bytes"] for cost in planned]
        for direction in ("reduce", "publish"):
            assert line["exchange"][f"{direction}_bytes"] == [cost[f"{direction}_bytes_per_step"] for cost in planned]
    # Without other processes: Gloo frees the buffers of an exchange when it gets to it.
    measured = harness.run_json("plan", "--measure", "--config", tmp_path / "run.yaml", "--nproc", processes)
    assert measured["predicted_bytes"]["peak"] == pytest.approx(measured["measured_bytes"]["peak"], rel=0.05)


LOCAL = {
    "subnetwork": {"workers": 4, "coverage": "2/4", "construction": "neuron", "masking": "backward"},
    "exchange": {"every_steps": 4}, "optimizer": OPTIMIZERS["adamw"] | {"ema_decay": 0.9},
    "train": {"max_steps": 10, "log_every_steps": 2},
    "checkpoint": {"every_steps": 1, "keep_last": 10}, "eval": {"every_steps": 3}, "output": {"trace": True},
}


def test_the_plan_has_a_dense_network_of_the_same_memory(tmp_path, tokens):
    """As wide as the subnetworks: the same forecast as that of the network with these sizes."""
    subnetwork = {"workers": 8, "coverage": "4/8", "construction": "neuron"}
    common = {"exchange": {"every_steps": 5}, "optimizer": OPTIMIZERS["adamw"], "data": {"name": "tokens", "sequence_length": TOKENS}}
    narrow_sizes = {"heads": 4, "head_size": 4, "hidden_width": 32}
    plans = [
        harness.run_json("plan", "--config", harness.write_config(tmp_path, name, tokens, model=model, subnetwork=own, **common))
        for name, model, own in (
            ("divided", LLAMA | {"hidden_width": 64}, subnetwork), ("narrow", LLAMA | narrow_sizes, subnetwork | {"coverage": "1"}),
        )
    ]  # fmt: skip
    row = next(method for method in plans[0]["forecast"]["methods"] if method["name"].startswith("narrower"))
    divided, expected = (plan["forecast"]["methods"][0] for plan in plans)
    ignored = {"name", "flops_share", "settings", "in_this_program"}
    assert {key: row[key] for key in row.keys() - ignored} == {key: expected[key] for key in expected.keys() - ignored}
    assert row["flops_share"] == pytest.approx(divided["flops_share"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("whole")
    config = harness.write_config(folder, "run", data, **LOCAL)
    harness.run("--config", config, "--nproc", 2, env={"OMP_NUM_THREADS": "1"})
    return folder / "runs" / "run"


@pytest.mark.parametrize("processes", [1, 4])
def test_the_number_of_processes_changes_no_bit(tmp_path, data, whole, processes):
    config = harness.write_config(tmp_path, "run", data, **LOCAL)
    harness.run("--config", config, "--nproc", processes, env={"OMP_NUM_THREADS": "1"})
    other = tmp_path / "runs" / "run"
    assert harness.trace_losses(other) == harness.trace_losses(whole)
    expected, actual = (harness.checkpoint_pieces(run, 10) for run in (whole, other))
    assert all(torch.equal(actual[key], values) for key, values in expected.items())


@pytest.mark.parametrize("step", [2, 7])
def test_a_run_that_was_cut_off_anywhere_in_a_round_resumes_to_the_same_bits(tmp_path, whole, step):
    run = shutil.copytree(whole, tmp_path / "run")
    for later in range(step + 1, 11):
        shutil.rmtree(run / "checkpoints" / f"step-{later:08d}", ignore_errors=True)
    (run / "summary.json").unlink()
    harness.run(
        "--config", run / "spec.yaml", "--set", f"output.dir={tmp_path}", "--resume", "--nproc", "2",
        env={"OMP_NUM_THREADS": "1"},
    )
    assert harness.hashes(run, 10) == harness.hashes(whole, 10)
    steps = [line["step"] for line in harness.records(run, "eval")]
    assert steps == [line["step"] for line in harness.records(whole, "eval")] == [4, 8, 10]


def test_division_changes_between_rounds_only(tmp_path, whole):
    def resumed(name, step, *settings, expect=0):
        run = shutil.copytree(whole, tmp_path / name)
        for later in range(step + 1, 11):
            shutil.rmtree(run / "checkpoints" / f"step-{later:08d}", ignore_errors=True)
        (run / "summary.json").unlink()
        changes = [argument for setting in settings for argument in ("--set", setting)]
        result = harness.run(
            "--config", run / "spec.yaml", "--set", f"output.dir={tmp_path}", "--set", f"name={name}", *changes, "--resume",
            "--nproc", "2", expect=expect,
        )
        return run, result

    _, refused = resumed("within", 5, "exchange.every_steps=null", expect=3)
    assert "every_steps" in refused.stderr
    without, _ = resumed("without", 8, "exchange.every_steps=null", "train.max_steps=9")
    average, _ = resumed("other", 8, "subnetwork.coverage=3/4", "train.max_steps=9")
    for run in (without, average):
        assert harness.last_eval(run)["step"] == 9
    back = shutil.copytree(without, tmp_path / "back")
    (back / "summary.json").unlink()
    harness.run(
        "--config", back / "spec.yaml", "--set", f"output.dir={tmp_path}", "--set", "name=back", "--set",
        "exchange.every_steps=2", "--set", "train.max_steps=12", "--resume", "--nproc", "2",
    )
    assert harness.last_eval(back)["step"] == 12
