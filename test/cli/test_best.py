"""Evaluations every few steps and the best checkpoint, against the run's own files."""

import json
import shutil

import pytest

import harness

LAST = 12


def steps_saved(run_dir):
    return sorted(int(folder.name.removeprefix("step-")) for folder in (run_dir / "checkpoints").iterdir())


def best_of(records, by):
    """The earliest of equals."""
    return min(records, key=lambda record: -record[by] if by == "accuracy" else record[by])


@pytest.mark.parametrize("by,masking,construction", [("accuracy", "forward", "block"), ("loss", "backward", "neuron")])
def test_the_best_checkpoint_is_kept_across_a_resume(tmp_path, data, by, masking, construction):
    run_dir = harness.train(
        tmp_path, "run", data, 2, subnetwork={"masking": masking, "construction": construction},
        optimizer={"lr": 0.3},  # high: the last evaluation is rarely the best
        train={"max_steps": LAST, "log_every_steps": 4}, eval={"every_steps": 3},
        checkpoint={"at_start": False, "keep_last": 1, "keep_best": by},
    )
    records = harness.records(run_dir, "eval")
    assert [record["step"] for record in records] == list(range(3, LAST + 1, 3))
    best = best_of(records, by)
    # If the last evaluation is the best, the best before it goes with the next checkpoint, of which there is none.
    expected = {best["step"], LAST} | ({best_of(records[:-1], by)["step"]} if best["step"] == LAST else set())
    assert steps_saved(run_dir) == sorted(expected)
    evaluate = lambda *more: harness.run_json("eval", "--run", run_dir, *more)
    again = evaluate("--checkpoint", "best")
    assert again["step"] == best["step"] and again["loss"] == pytest.approx(best["loss"], abs=1e-9)
    assert evaluate("--checkpoint", LAST)["loss"] == pytest.approx(records[-1]["loss"], abs=1e-9) == evaluate()["loss"]
    refused = harness.run("eval", "--run", run_dir, "--checkpoint", 7, expect=2).stderr
    assert "7" in refused and str(LAST) in refused

    # Continued from the best checkpoint, the run finds the same evaluations and keeps the same checkpoints.
    if best["step"] < LAST:
        shutil.rmtree(run_dir / "checkpoints" / f"step-{LAST:08d}")
        run_dir = run_dir.rename(tmp_path / "moved")
        said = harness.run("--run", run_dir, "--nproc", 2, "--resume=latest-good")
        assert "warning" not in said.stdout + said.stderr
        again = harness.records(run_dir, "eval")
        assert list(map(harness.without_times, again)) == list(map(harness.without_times, records))
        assert steps_saved(run_dir) == sorted({best["step"], LAST})


def test_scores_of_other_samples_or_corrections_are_not_compared(tmp_path, data):
    """Parts of a run of 4 steps each, all but the last with another measure than the part before. The best of each measure
    keeps its checkpoint, and `best` is that of the last measure."""
    other = shutil.copytree(data, tmp_path / "other")
    images, labels = harness.read_arrays(other / "val.safetensors")
    harness.write_arrays(other / "val.safetensors", images[1:], labels[1:], harness.CIFAR10)
    parts = ["eval.max_samples=7", "eval.branch_scale=survival", "checkpoint.keep_best=loss", f"data.path={other}",
             "optimizer.lr=0.01"]
    run_dir = harness.train(
        tmp_path, "run", data, 1, model={"name": "mlp", "width": 4, "depth": 4, "hidden_width": 16},
        train={"max_steps": 4}, eval={"every_steps": 1},
        checkpoint={"at_start": False, "keep_last": 1, "keep_best": "accuracy"},
    )
    for i, change in enumerate(parts, 2):
        said = harness.run("--run", run_dir, "--resume", *harness.sets(f"train.max_steps={4 * i}", change))
        assert ("measure" in said.stdout) == (i <= len(parts)), change
    records = harness.records(run_dir, "eval")
    spans = [range(1, 5), range(5, 9), range(9, 13), range(13, 17), range(17, 25)]
    measured = [[record for record in records if record["step"] in span] for span in spans]
    best = [best_of(group, "accuracy" if i < 3 else "loss")["step"] for i, group in enumerate(measured)]
    assert set(best) <= set(steps_saved(run_dir))

    evaluate = lambda **more: harness.run("eval", "--run", run_dir, "--json", "--checkpoint", "best", **more)
    found = evaluate()
    assert json.loads(found.stdout)["step"] == best[-1] and f"step {best[-1]}" in found.stderr
    shutil.rmtree(run_dir / "checkpoints" / f"step-{best[-1]:08d}")
    is_left = any(record["step"] in steps_saved(run_dir) for record in measured[-1])
    assert f"step {best[-1]}" in evaluate(expect=0 if is_left else 2).stderr
