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

def groups_of(folder):
    return group_runs(find([folder]).runs)


def changed(step):
    return {"changes": [{"step": step, "key": "optimizer.lr", "was": "0.5", "now": "0.02"}]}


def data_of(path, digest):
    read = {"training_data": {"samples": 9, "hash": digest}, "test_data": {"samples": 3, "hash": "bb"}}
    return {"history": read if digest else None, "data": {"path": path}}


def test_statistics_and_order():
    four, one = statistic([2, 4, 4, 6]), statistic([math.nan, 3])
    assert (four.mean, four.std, four.count) == (4, pytest.approx(math.sqrt(8 / 3)), 4)
    assert (one.mean, one.std, one.count) == (3, pytest.approx(math.nan, nan_ok=True), 1)
    assert math.isnan(statistic([]).mean)
    assert sorted(["w 11", "w 9", "w 5e-4", "w 0.3"], key=natural) == ["w 5e-4", "w 0.3", "w 9", "w 11"]


ELSEWHERE = {"output": {"dir": "elsewhere"}, "checkpoint": {"keep_last": 7}, "subnetwork": {"coverage": 0.5}}
IMPORTED = {"imported": {"path": "a", "bytes": 5, "xxh3_128": "0123456789abcdef"}}
LR, DDP = {"optimizer": {"lr": 0.5}}, {"owners": 4, "optimizer": {"shard": False}, "eval": {"recalibrate_batches": 0}}


@pytest.mark.parametrize("runs, labels", [
    ([{}, {"seed": 1, **ELSEWHERE}, {"seed": 2, **LR}], {"B-SDP 2/4, lr 0.1": 2, "B-SDP 2/4, lr 0.5": 1}),
    # What a run began with, and what was changed in it, unless nothing was trained with the new value.
    ([{"history": {}}, {"history": IMPORTED}], {"B-SDP 2/4, from scratch": 1, "B-SDP 2/4, imported 01234567": 1}),
    ([{"history": changed(10)}, {"history": {}, **LR}], {"B-SDP 2/4": 1, "a (changed *)": 1}),
    ([{"history": changed(40), **LR}, {"history": {}, "seed": 1, **LR}], {"B-SDP 2/4": 2}),
    # What differs and nothing else: not what follows from the regime.
    ([{}, DDP], {"B-SDP 2/4": 1, "DDP": 1}),
    ([{}, {"eval": {"recalibrate_batches": 50}}],
     {"B-SDP 2/4, recalibrate_batches 0": 1, "B-SDP 2/4, recalibrate_batches 50": 1}),
    # Of several options that change together, one tells the rows apart; independent ones are all named.
    ([{"optimizer": {"lr": lr, "weight_decay": lr / 100, "momentum": lr, "clip_norm": lr}} for lr in (0.1, 0.2, 0.3)],
     {f"B-SDP 2/4, lr {lr}": 1 for lr in (0.1, 0.2, 0.3)}),
    ([{"optimizer": {"lr": lr, "weight_decay": decay}} for lr in (0.1, 0.2) for decay in (0, 0.01)],
     {f"B-SDP 2/4, lr {lr}, weight_decay {decay}": 1 for lr in (0.1, 0.2) for decay in (0, 0.01)}),
])  # fmt: skip
def test_which_runs_are_one_group_and_what_labels_say(tmp_path, runs, labels):
    for name, run in zip("abcd", runs):
        write_run(tmp_path / name, **run)
    assert {group.label: len(group.runs) for group in groups_of(tmp_path)} == labels
    assert [group.label for group in groups_of(tmp_path)] == list(labels)


def test_data_are_compared_not_their_path(tmp_path):
    read = [("/here/cifar", "aa"), ("/there", "aa"), ("/there", "cc"), ("/x/cifar", "")]
    for seed, (path, digest) in enumerate(read):
        write_run(tmp_path / str(seed), seed=seed, **data_of(path, digest))  # the last does not say what it read
    groups = groups_of(tmp_path)
    assert [(group.data_set, len(group.runs)) for group in groups] == [("cifar10 in /here/cifar", 3), ("cifar10 in /there", 1)]
    assert groups_of(tmp_path / "0")[0].data_set == "cifar10"


def test_labels_of_sweeps(tmp_path):
    for name, epochs in (("a", 20), ("b", 60)):
        write_run(tmp_path / name / "run é", train={"max_steps": None, "epochs": epochs})
        listed = {"runs": [{"folder": "run é", "label": "häl½"}]}
        (tmp_path / name / "sweep.json").write_text(json.dumps(listed))
    groups = groups_of(tmp_path)
    assert [group.label for group in groups] == ["häl½, epochs 20", "häl½, epochs 60"]
    assert {group.label_without(BUDGET) for group in groups} == {"häl½"}


def test_copies_of_a_run_and_repeats_of_a_seed_count_once(tmp_path):
    """Of an id the run with the most steps; a copy that went on under another name is another run."""
    change = {"step": 20, "key": "train.max_steps", "was": "20", "now": "40"}
    write_run(tmp_path / "a", history={"id": "x"}, losses=(1, 1))
    write_run(tmp_path / "b", history={"id": "x", "changes": [change]}, finished=False)
    write_run(tmp_path / "c", history={"id": "x"}, losses=(1, 1), finished=False)
    renamed = {"step": 20, "key": "name", "was": "a", "now": "d"}
    write_run(tmp_path / "d", history={"id": "x", "changes": [renamed]}, losses=(1, 1))
    os.symlink(tmp_path, tmp_path / "loop")
    found = find([tmp_path, tmp_path / "a"])
    assert [run.folder.name for run in found.runs] == ["b", "d"]
    assert [copy.name for copy, reason in found.left_out if str(tmp_path / "b") in reason] == ["a", "c"]

    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_run(tmp_path / "seeds" / name, history={}, seed=seed)
    (group,) = groups_of(tmp_path / "seeds")
    assert [run.name for run in group.runs] == ["a", "c"]
    (note,) = notes_of_groups([group])
    assert f"{tmp_path / 'seeds' / 'b'} is not counted" in note and f"seed of {tmp_path / 'seeds' / 'a'}, 0" in note


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
