"""Exchanges, memory and times in metrics.jsonl, compared with the plan; and profiles, compared with PyTorch's. Settings that
change cost and not results: test/engine, test/model."""

import collections
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import harness
from small_models import TOKENS, VOCABULARY

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
from benchmark.models import Model  # noqa: E402
from benchmark.networks import network  # noqa: E402
from gpuhour.steps import events_of, outermost  # noqa: E402

KINDS = ("activations", "weights", "gradients", "optimizer", "buckets")


def test_exchanges_memory_and_profile(tmp_path, data):
    run = harness.train(
        tmp_path, "run", data, 2, model={"width": 8}, subnetwork={"workers": 2, "coverage": "1/2"},
        train={"max_steps": 6, "log_every_steps": 3, "bucket_megabytes": 0.2, "precision": "fp32", "profile_steps": 2},
    )
    lines, plan = harness.records(run, "train"), harness.plan_of(run)
    planned, flops = plan["per_process"], np.mean([worker["flops_per_sample"] for worker in plan["per_worker"]])
    buffers = [values for kind, *_, values in harness.checkpoint_tensors(run, 6) if kind == "buffer"]
    assert len(lines) == 2
    for line in lines:
        assert line["flops_per_s"] == pytest.approx(line["samples_per_s"] * flops, rel=1e-12)
        assert harness.DEVICE == "cuda" or "utilization" not in line
        exchange, memory = line["exchange"], line["memory"]
        assert all(len(values) == 2 for values in [*exchange.values(), *memory.values()])
        assert set(memory) == {f"{kind}_bytes" for kind in KINDS}
        for direction in ("reduce", "publish"):
            assert exchange[f"{direction}_bytes"] == [cost[f"{direction}_bytes_per_step"] for cost in planned]
            for wait, under_way in zip(exchange[f"{direction}_wait_ms"], exchange[f"{direction}_ms"]):
                assert wait >= 0 and under_way > 0
        assert line["bytes_sent"] == exchange["reduce_bytes"][0] + exchange["publish_bytes"][0]
        assert 0 <= line["overlap"] <= 1
        assert exchange["busy_ms"][line["slowest_rank"]] == max(exchange["busy_ms"]) > 0
        waits = np.add(exchange["reduce_wait_ms"], exchange["publish_wait_ms"])
        assert line["exchange_wait_ms"] == pytest.approx(waits.mean())
        times = np.array([line["times"][f"{part}_ms"] for part in ("forward", "backward", "optimizer")])  # by rank
        assert times.min() > 0 and times.sum(0).max() <= line["step_ms"] * 1.01
        for rank, cost in enumerate(planned):
            assert memory["optimizer_bytes"][rank] == cost["optimizer_bytes"]
            batch_norm_bytes = memory["weights_bytes"][rank] - cost["parameter_bytes"]
            assert 0 < batch_norm_bytes <= 4 * sum(values.numel() for values in buffers)
            assert memory["gradients_bytes"][rank] <= cost["gradient_bytes"] + 2 * cost["parameter_bytes"]
            assert memory["activations_bytes"][rank] > 0.5 * cost["activation_bytes"]
    for rank in (0, 1):
        events = json.loads((run / f"profile-rank-{rank}.json").read_text())["traceEvents"]
        names = [event["name"] for event in events if event.get("cat") == "cpu_op"]
        # Two steps of one worker: the stem, two convolutions of each of its branches, three projections.
        assert names.count("aten::convolution_backward") % 2 == 0
        assert 2 * (1 + 3) < names.count("aten::convolution_backward") <= 2 * (1 + 3 + 16)


@pytest.mark.parametrize("processes,mode,construction", [(1, "full", "block"), (2, "streamed", "neuron")])
def test_the_memory_of_evaluations_is_their_own(tmp_path, data, processes, mode, construction):
    """An evaluation in the middle of a run, on a batch of 20 times the size, leaves the peak of training as it is."""
    run = harness.train(
        tmp_path, "one", data, processes,
        subnetwork={"workers": 2, "coverage": "1/2", "construction": construction},
        train={"max_steps": 8, "log_every_steps": 2, "batch_size_per_worker": 2},
        eval={"every_steps": 4, "batch_size": 40, "mode": mode},
    )
    _, before, *after = (line["peak_tensor_memory_bytes"] for line in harness.records(run, "train"))
    assert after == pytest.approx([before] * 2, rel=0.02)

    def in_training_and_evaluation(said):
        line = [line for line in (run / "log.txt").read_text().splitlines() if said in line][-1]
        unit = {"K": 2**10, "M": 2**20}
        return [float(number) * unit[prefix] for number, prefix in re.findall(r"([\d.]+) ([KM])iB in", line)]

    training, evaluation = in_training_and_evaluation("finished after step 8")
    assert training == pytest.approx(before, rel=0.02) and evaluation > 1.2 * training
    _, planned = in_training_and_evaluation("planned to reach")
    assert planned == pytest.approx(evaluation, rel=0.05)


def operators(trace):
    """How often a Chrome trace has each operator that no other one calls."""
    events = [event for event in events_of(trace, {"cpu_op"}) if re.match("(aten|sdp)::", event["name"])]
    return collections.Counter(event["name"] for event in outermost(events))


def operators_in_torch(folder, model):
    """Of a step in eager mode with the fused optimizer."""
    module = network(model).to(memory_format=torch.channels_last)
    inputs, labels = torch.randn(model.batch, 3, 32, 32).to(memory_format=torch.channels_last), torch.zeros(model.batch).long()
    if model.is_text:
        inputs = torch.randint(VOCABULARY, (model.batch, TOKENS))
        labels = inputs.flatten()
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    for _ in range(2):  # the first allocates the state
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            F.cross_entropy(module(inputs).flatten(0, -2), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    profile.export_chrome_trace(str(folder / "torch.json"))
    return operators(json.loads((folder / "torch.json").read_text())["traceEvents"]), len(list(module.parameters()))


@pytest.mark.parametrize("model,more", [
    # A ReLU that keeps bits, batches, accuracy, the sum of losses, whether they are finite: as many for any depth.
    (Model("resnet18", 2, 8), 52),
    (Model("llama", 2, 32, heads=2, depth=3, hidden_width=48, vocabulary=VOCABULARY, length=TOKENS), 0),
])  # fmt: skip
def test_the_host_calls_no_more_operators_than_pytorch(tmp_path, data_of, model, more):
    def in_a_step(workers):
        run = harness.train(
            tmp_path, f"run{workers}", data_of(model.spec()["model"]), 1, **model.spec() | {
                "optimizer": {"name": "adamw"}, "subnetwork": {"workers": workers, "coverage": "1"},
                "train": {"max_steps": 8, "precision": "fp32", "profile_steps": 1, "log_every_steps": 100} | model.sizes()["train"],
            },
        )  # fmt: skip
        return operators(json.loads((run / "profile-rank-0.json").read_text())["traceEvents"])

    theirs, parameters = operators_in_torch(tmp_path, model)
    one, eight = in_a_step(1), in_a_step(8)
    assert one.total() <= theirs.total() + more, (one.total(), theirs.total(), one - theirs)
    # A sum for each worker and parameter.
    assert eight.total() <= 8 * (one.total() + parameters), (eight.total(), one.total(), parameters)
