"""Which runs belong together, and what they are called."""

import json
import math
import os
import shutil
from pathlib import Path

import pytest
from small_runs import write_run

import sdp_lab
from sdp_lab.figures import Study, _coverage_figure, lines_of_regimes
from sdp_lab.groups import BUDGET, group_runs, natural
from sdp_lab.measures import statistic
from sdp_lab.runs import find
from sdp_lab.table import notes_of_groups

LR = [{"optimizer": {"lr": lr}} for lr in (0.1, 0.5)]


def groups_of(folder):
    return group_runs(find([folder]).runs)


def labels_of(folder):
    return [group.label for group in groups_of(folder)]


def test_sample_statistics():
    four, one = statistic([2, 4, 4, 6]), statistic([math.nan, 3])
    assert (four.mean, four.std, four.count) == (4, pytest.approx(math.sqrt(8 / 3)), 4)
    assert (one.mean, one.std, one.count) == (3, pytest.approx(math.nan, nan_ok=True), 1)
    assert math.isnan(statistic([]).mean)


def test_numbers_order_labels():
    assert sorted(["w 11", "w 9", "w 5e-4", "w 0.3"], key=natural) == ["w 5e-4", "w 0.3", "w 9", "w 11"]


def test_runs_that_differ_only_in_seed_and_output_are_one_group(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", seed=1, output={"dir": "elsewhere"}, checkpoint={"keep_last": 7}, subnetwork={"coverage": 0.5})
    write_run(tmp_path / "c", seed=2, **LR[1])
    groups = groups_of(tmp_path)
    assert [group.label for group in groups] == ["B-SDP 2/4, lr 0.1", "B-SDP 2/4, lr 0.5"]
    assert [len(group.runs) for group in groups] == [2, 1]


def test_initial_weights_and_changes_set_groups_apart(tmp_path):
    imported = {"imported": {"path": "a", "bytes": 5, "xxh3_128": "0123456789abcdef"}}
    change = {"step": 10, "key": "optimizer.lr", "was": "0.5", "now": "0.02"}
    unused = {"step": 40, "key": "optimizer.lr", "was": "0.5", "now": "0.02"}
    write_run(tmp_path / "1" / "a", history={})
    write_run(tmp_path / "1" / "b", history=imported)
    assert labels_of(tmp_path / "1") == ["B-SDP 2/4, from scratch", "B-SDP 2/4, imported 01234567"]
    write_run(tmp_path / "2" / "c", history={"changes": [change]})
    write_run(tmp_path / "2" / "d", history={}, **LR[1])
    assert labels_of(tmp_path / "2") == ["B-SDP 2/4", "c (changed *)"]
    write_run(tmp_path / "3" / "d", history={"changes": [unused]}, **LR[1])
    write_run(tmp_path / "3" / "e", history={}, **LR[1])
    assert labels_of(tmp_path / "3") == ["B-SDP 2/4"]  # nothing was trained with the new value


def test_labels_say_what_differs_and_nothing_else(tmp_path):
    write_run(tmp_path / "a" / "b")
    write_run(tmp_path / "a" / "d", owners=4, optimizer={"shard": False}, eval={"recalibrate_batches": 0})
    assert labels_of(tmp_path / "a") == ["B-SDP 2/4", "DDP"]  # what follows from the regime is not named
    write_run(tmp_path / "a" / "e", eval={"recalibrate_batches": 50})
    assert "recalibrate_batches 50" in labels_of(tmp_path / "a")[1]
    # Several options that change together: one of them tells the rows apart.
    for i, lr in enumerate((0.1, 0.2, 0.3)):
        write_run(tmp_path / "b" / str(i), optimizer={"lr": lr, "weight_decay": lr / 100, "momentum": lr, "clip_norm": lr})
    assert all(label.count(",") == 1 for label in labels_of(tmp_path / "b"))
    # Both are named where they change independently.
    for i, (lr, decay) in enumerate([(0.1, 0), (0.1, 0.01), (0.2, 0), (0.2, 0.01)]):
        write_run(tmp_path / "c" / str(i), optimizer={"lr": lr, "weight_decay": decay})
    assert labels_of(tmp_path / "c")[1] == "B-SDP 2/4, lr 0.1, weight_decay 0.01"


def test_data_are_compared_not_their_path(tmp_path):
    aa, cc = ({"training_data": {"samples": 9, "hash": name}, "test_data": {"samples": 3, "hash": "bb"}} for name in ("aa", "cc"))
    write_run(tmp_path / "a", history=aa, data={"path": "/here/cifar"})
    write_run(tmp_path / "b", history=aa, seed=1, data={"path": "/there"})
    write_run(tmp_path / "c", history=cc, data={"path": "/there"})
    write_run(tmp_path / "old", seed=2, data={"path": "/elsewhere/cifar"})  # does not say what it read
    groups = groups_of(tmp_path)
    assert [(group.data_set, len(group.runs)) for group in groups] == [("cifar10 in /here/cifar", 3), ("cifar10 in /there", 1)]
    assert groups_of(tmp_path / "a")[0].data_set == "cifar10"


def test_labels_of_sweeps(tmp_path):
    for name, epochs in (("a", 20), ("b", 60)):
        write_run(tmp_path / name / "run é", train={"max_steps": None, "epochs": epochs})
        listed = {"runs": [{"folder": "run é", "label": "häl½"}]}
        (tmp_path / name / "sweep.json").write_text(json.dumps(listed))
    groups = groups_of(tmp_path)
    assert [group.label for group in groups] == ["häl½, epochs 20", "häl½, epochs 60"]
    assert {group.label_without(BUDGET) for group in groups} == {"häl½"}


def test_an_id_is_one_run_that_with_the_most_steps(tmp_path):
    change = {"step": 20, "key": "train.max_steps", "was": "20", "now": "40"}
    write_run(tmp_path / "a", history={"id": "x"}, losses=(1, 1))
    write_run(tmp_path / "b", history={"id": "x", "changes": [change]}, finished=False)
    write_run(tmp_path / "c", history={"id": "x"}, losses=(1, 1), finished=False)
    os.symlink(tmp_path, tmp_path / "loop")
    found = find([tmp_path, tmp_path / "a"])
    assert [run.folder.name for run in found.runs] == ["b"]
    assert [(copy.name, reason) for copy, reason in found.left_out] == [(name, f"the same run as {tmp_path / 'b'}") for name in "ac"]


def test_a_seed_is_averaged_once(tmp_path):
    for name, seed, accuracy in (("a", 0, 0.25), ("b", 0, 0.5), ("c", 1, 0.75)):
        write_run(tmp_path / name, history={}, seed=seed, accuracy=accuracy)
    (group,) = groups_of(tmp_path)
    assert [run.name for run in group.runs] == ["a", "c"]
    (note,) = notes_of_groups([group])
    assert f"{tmp_path / 'b'} is not counted" in note and f"seed of {tmp_path / 'a'}, 0" in note


def test_an_archive_is_read_as_a_folder(tmp_path):
    for name in "ab":
        write_run(tmp_path / "sweep" / name)
    (tmp_path / "sweep" / "sweep.json").write_text(json.dumps({"runs": [{"folder": "b", "label": "long"}]}))
    (tmp_path / "sweep" / "a" / "plan.json").write_text("{}")
    archive = Path(shutil.make_archive(tmp_path / "runs" / "s", "zip", tmp_path / "sweep"))
    (tmp_path / "runs" / "other.zip").write_bytes(archive.read_bytes()[:100])
    for path in (archive, tmp_path / "runs"):
        found = find([path])
        assert [(run.folder, run.sweep_label) for run in found.runs] == [(archive / "b", "long")]
        assert [str(reason).partition(":")[0] for _, reason in found.left_out] == [str(archive / "a" / "plan.json")]


def test_a_line_over_coverages_has_a_name_without_one_and_no_run_that_changed(tmp_path):
    for name, owners in (("a", 2), ("b", 3), ("d", 4)):
        write_run(tmp_path / name, owners=owners, optimizer={"shard": owners < 4})
    write_run(tmp_path / "e", history={"changes": [{"step": 10, "key": "optimizer.lr", "was": "0.5", "now": "0.1"}]})
    for labels, name in ((("N, coverage=2/4", "N, coverage=3/4"), "N"), (("half", "more"), "B-SDP"), (("", ""), "B-SDP")):
        runs = [{"folder": folder, "label": label} for folder, label in zip("ab", labels, strict=True)]
        (tmp_path / "sweep.json").write_text(json.dumps({"runs": runs}))
        study = Study(groups_of(tmp_path))
        assert {line: len(of) for line, of in lines_of_regimes(study).items()} == {name: 3, "DDP": 1, "e (changed *)": 1}
        assert {text.get_text() for text in _coverage_figure(study).axes[0].get_legend().get_texts()} == {name, "DDP"}


def test_bad_files_are_named_with_the_line(tmp_path):
    for name, text in (("a", "{broken"), ("b", "[1]"), ("c", '{"kind": "train"}')):
        metrics = write_run(tmp_path / name) / "metrics.jsonl"
        metrics.write_text(metrics.read_text().replace("\n", f"\n{text}\n", 1))
    (write_run(tmp_path / "d") / "plan.json").write_text("{}")
    (write_run(tmp_path / "e") / "spec.yaml").write_text("name: e\nmodel: {nme: mlp}")
    write_run(tmp_path / "f", history={"format": 99})
    metrics = write_run(tmp_path / "good") / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"kind": "tr')  # is being written
    found = find([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    reasons = {folder.name: reason for folder, reason in found.left_out}
    assert list(reasons) == list("abcdef")
    assert all("metrics.jsonl, line 2:" in reasons[name] for name in "abc")
    assert "plan.json" in reasons["d"] and "nme" in reasons["e"] and "newer" in reasons["f"]


def test_frames(tmp_path):
    write_run(tmp_path / "a", accuracy=0.25)
    write_run(tmp_path / "b", accuracy=0.75, seed=1, finished=False)
    runs = sdp_lab.load(tmp_path).set_index("run")
    assert list(runs["accuracy"]) == [0.25, 0.75] and list(runs["finished"]) == [True, False]
    assert runs.loc["b", "seed"] == 1 and runs.loc["a", "optimizer.lr"] == 0.1 and runs.loc["a", "share"] == 0.5
    assert runs.loc["a", "planned_memory_bytes"] == 800
    lines = sdp_lab.curves([tmp_path / "a"])
    train = lines[lines["kind"] == "train"]
    assert list(train["loss"]) == [2.0, 1.5, 1.0, 0.5] and list(train["epochs"]) == [0.25, 0.5, 0.75, 1.0]
    assert list(train["seconds"]) == pytest.approx([0.1, 0.3, 0.6, 1.0])
    assert list(train["flops"]) == [step * 2 * 4 * 2000 for step in (10, 20, 30, 40)]
    assert len(lines[lines["kind"] == "eval"]) == 1
