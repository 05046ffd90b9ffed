"""TensorBoard's own reader finds the values of metrics.jsonl in the event files, each step once, also after a kill."""


import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams import plugin_data_pb2

import harness

SMALL = {
    "train": {"max_steps": 40, "precision": "fp32", "log_every_steps": 5},
    "checkpoint": {"at_start": False, "every_steps": 20},
    "eval": {"recalibrate_batches": 2, "every_epochs": 0.8},  # every 10 steps
    "output": {"trace": False},
}
TIME_KEYS = ["forward_ms", "backward_ms", "optimizer_ms"]  # by rank; TensorBoard shows means, as of those by worker
SUBNETWORK_KEYS = ["subnetwork_loss", "subnetwork_accuracy"]


def event_files(run_dir):
    return sorted(run_dir.glob("events.out.tfevents.*"))


def events_of(file):
    """LegacyEventFileLoader stops silently at a record whose CRC is wrong."""
    return list(LegacyEventFileLoader(str(file)).Load())


def expected_scalars(run_dir):
    """tag -> [(step, value)] by metrics.jsonl, in single precision. Which of them are shown is declared with each
    (lib/run/records.h)."""
    expected = {}
    for line in harness.json_lines(run_dir / "metrics.jsonl"):
        means = {key: np.mean(line["times"][key]) for key in TIME_KEYS} if line["kind"] == "train" else {}
        means |= {key: np.mean(line[key]) for key in SUBNETWORK_KEYS if key in line}
        for key, value in (line | means).items():
            if isinstance(value, (int, float)):
                expected.setdefault(f"{line['kind']}/{key}", []).append((line["step"], np.float32(value)))
    return expected


def shown_scalars(run_dir):
    """The same, read as TensorBoard shows it."""
    accumulator = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(event.step, np.float32(event.value)) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_scalars_are_those_of_the_metrics_also_of_a_run_that_was_killed(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, **SMALL)
    run_dir = tmp_path / "runs" / "run"
    process = harness.start_run(config, "--nproc", 2, start_new_session=True)
    metrics = run_dir / "metrics.jsonl"
    harness.await_(lambda: metrics.exists() and '"step":25,' in metrics.read_text(), "metrics of step 25", process)
    harness.kill_run(process)
    (first,) = event_files(run_dir)
    before = first.read_bytes()
    assert max(step for step, _ in shown_scalars(run_dir)["train/loss"]) >= 25
    resumed_at = harness.saved_step(run_dir)
    harness.run("--config", config, "--nproc", 2, "--resume")
    assert first.read_bytes() == before

    shown, expected = shown_scalars(run_dir), expected_scalars(run_dir)
    assert shown == {tag: expected[tag] for tag in shown}
    assert {"train/forward_ms", "eval/accuracy", "eval/subnetwork_loss", "checkpoint/save_s"} <= shown.keys()
    assert [step for step, _ in shown["train/loss"]] == list(range(5, 45, 5))
    assert [step for step, _ in shown["eval/loss"]] == [10, 20, 30, 40]
    _, second = event_files(run_dir)
    events = events_of(second)
    assert len(events) == 3 + sum(line["step"] > resumed_at for line in harness.json_lines(metrics))
    assert events[0].file_version == "brain.Event:2"
    assert events[1].session_log.status == events[1].session_log.START
    assert events[1].step == resumed_at + 1  # TensorBoard drops this step and those after it
    times = [event.wall_time for event in events]
    assert times == sorted(times) and abs(times[-1] - second.stat().st_mtime) < 60
    (settings,) = [value for event in events_of(first) for value in event.summary.value if value.HasField("metadata")]
    content = plugin_data_pb2.HParamsPluginData.FromString(settings.metadata.plugin_data.content)
    hyperparameters = content.session_start_info.hparams.items()
    values = {key: getattr(value, value.WhichOneof("kind")) for key, value in hyperparameters}
    assert (values["optimizer.lr"], values["optimizer.shard"], values["seed"]) == (0.05, True, 3)
    assert values["subnetwork.masking"] == "forward" and "output.dir" not in values

    # Nothing is left to train, so nothing is written.
    harness.run("--config", config, "--nproc", 1, "--resume")
    assert len(event_files(run_dir)) == 2
