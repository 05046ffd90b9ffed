"""The points of a sweep's file, written out here, and what the file is refused for."""

import itertools

import pytest

from sdp_lab.sweep_file import SweepFile
from sdp_lab.trainer import LabError

SWEEP = """
name: coverage
configs: [../base.yaml, more.yaml]
set: {train.epochs: 2, model: {width: 16}}
grid:
  regime:
    B: {subnetwork.construction: block}
    N: {subnetwork.construction: neuron, configs: [neuron.yaml]}
  subnetwork.coverage: [6/8, 1]
  seed: [0, 1]
also:
  - {label: "narrow, equal memory", set: {subnetwork.coverage: 1, model.width: 11}, across: [seed]}
  - {label: DDP, configs: [ddp.yaml], set: {optimizer.shard: false}}
"""


@pytest.fixture
def points_of(tmp_path, monkeypatch):
    """The points of a text as the file folder/x.yaml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()

    def points(text):
        file = (tmp_path / "folder" / "x.yaml").relative_to(tmp_path)
        file.write_text(text, "utf-8")
        return SweepFile(file).points()

    return points


def names(points):
    return [point.name for point in points]


def test_the_first_axis_varies_slowest_and_additions_follow(points_of):
    grid = itertools.product(("regime=B", "regime=N"), ("coverage=6-8", "coverage=1"), ("seed=0", "seed=1"))
    added = ["narrow-equal-memory,seed=0", "narrow-equal-memory,seed=1", "DDP"]
    assert names(points_of(SWEEP)) == [*map(",".join, grid), *added]


def test_settings_of_all_points_come_before_those_of_values_and_of_additions(points_of):
    points = points_of(SWEEP)
    assert points[5].label == "N, coverage=6/8"
    assert points[5].configs == ["base.yaml", "folder/more.yaml", "folder/neuron.yaml"]
    common = ["train.epochs=2", "model.width=16"]
    assert points[5].set == [*common, "subnetwork.construction=neuron", "subnetwork.coverage=6/8", "seed=1"]
    assert points[5].values == {"regime": "N", "subnetwork.coverage": "6/8", "seed": "1"}
    assert points[8].label == "narrow, equal memory"
    assert points[8].set == [*common, "seed=0", "subnetwork.coverage=1", "model.width=11"]
    assert list(points[8].values.items()) == [("subnetwork.coverage", "1"), ("seed", "0")]
    assert points[10].configs == ["base.yaml", "folder/more.yaml", "folder/ddp.yaml"] and points[10].values == {}


@pytest.mark.parametrize("value,expected", [
    ("data.augment: [crop, flip]", "data.augment=[crop, flip]"), ("data.augment: []", "data.augment=[]"),
    ("model.width: null", "model.width=null"), ("optimizer.lr: 5e-4", "optimizer.lr=5e-4"),
    ('data.path: "7"', 'data.path="7"'), ("data.path: 'a, b: #c'", 'data.path="a, b: #c"'),
    ("schedule: {milestones: [0.5, 0.75]}", "schedule.milestones=[0.5, 0.75]"),
    ("optimizer: {groups: [{match: '*.bias', lr_factor: 2}]}", 'optimizer.groups=[{match: "*.bias", lr_factor: 2}]'),
])  # fmt: skip
def test_values_keep_their_meaning_on_the_command_line(points_of, value, expected):
    (point,) = points_of(f"name: x\ngrid: {{seed: [0]}}\nset: {{{value}}}\n")
    assert point.set[0] == expected and point.label == "x"


@pytest.mark.parametrize("text,expected", [
    ("also: [{label: a}, {label: b}]", ["a", "b"]),
    ("also: [{label: größer; 2×}, {label: 幅 小}, {label: ελ/λ}, {label: 🙂}, {label: 'a\\b $c'}]",
     ["größer-2×", "幅-小", "ελ-λ", "🙂", "a-b-c"]),
    # Axes with the same last word keep their full names.
    ("grid: {model.name: [mlp], optimizer.name: [sgd, adamw], data.augment: [[], [crop]]}",
     [f"model.name=mlp,optimizer.name={optimizer},augment={augment}"
      for optimizer in ("sgd", "adamw") for augment in ("", "crop")]),
])  # fmt: skip
def test_names(points_of, text, expected):
    assert names(points_of(f"name: x\n{text}\n")) == expected


GRID = "name: x\ngrid: {seed: [0, 1], regime: {B: {subnetwork.construction: block}}}\n"
REFUSALS = [
    (GRID + "also: [{label: a, crosss: [seed]}]", "x.yaml:3:19: also.crosss: unknown key; did you mean 'across'?"),
    (GRID + "also: [{label: a, across: [sede]}]", "x.yaml:3:28: also.across: found 'sede', expected an axis of `grid`: seed, regime; did you mean 'seed'?"),
    (GRID + "set: {name: a}", "the sweep names its runs itself"),
    (GRID + "set: {optimizer.lr: 1, optimizer: {lr: 2}}", "optimizer.lr: found a second time"),
    (GRID + "also: [{label: a, set: {seed: 3}, across: [seed]}]", "also.across: found 'seed'"),
    (GRID + "also: [{set: {seed: 3}}]", "also.label: missing"),
    ("name: x\ngrid: {seed: [0, 0]}\n", "grid.seed: found '0' a second time"),
    ("name: x\ngrid: {seed: []}\n", "grid.seed: found no value"),
    ("name: x\ngrid: {seed: [{a: 1}]}\n", "x.yaml:2:15: found a mapping"),
    ("name: x\ngrid: {seed: [0], a: {b: {seed: 1}}}\n", "grid.a: sets seed, which the axis seed sets too"),
    ("name: x\ngrid: {" + ", ".join(f"a.{axis}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" for axis in "bcdef") + "}", "100,000 points"),
    ("name: x\nalso: [{label: a b}, {label: a/b}]\n", 'the name a-b: "a b" and "a/b"'),
    ("name: x\ngrid: {seed: [0, 1]}\nalso: [{label: seed=1}, {label: seed 1}]\n", "the name seed-1"),
    ("grid: {seed: [0]}\n", "x.yaml:1:1: name: missing"),
    ("name: a/b\ngrid: {seed: [0]}\n", "expected a folder name"),
    ("name: x\nconfigs: [a.yaml]\n", "nothing to run, expected `grid` or `also`"),
    ("", "is empty"),
    ("base: ../resnet18.yaml\nseed: 3\n", "sdp-train --config folder/x.yaml"),
    ("train: {epochs: 3}\n", "found an experiment, expected a sweep"),
]  # fmt: skip


@pytest.mark.parametrize("text,message", REFUSALS)
def test_refusals(points_of, text, message):
    with pytest.raises(LabError) as error:
        points_of(text)
    assert message in str(error.value)
