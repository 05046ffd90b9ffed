"""The file of a sweep: one experiment under many settings.

    name: coverage                  # runs go to OUTPUT.DIR/coverage/POINT; output.dir is the experiments'
    configs: [../resnet18.yaml]     # as of --config: relative to this file, later ones win
    set: {train.epochs: 2}          # as of --set, for every run; before what an axis sets
    grid:                           # axes; the first varies slowest
      regime:                       # named values: each any keys, and `configs` of its own
        B: {subnetwork.construction: block}
        N: {subnetwork.construction: neuron, configs: [neuron.yaml]}
      subnetwork.coverage: [6/8, 4/8]   # values of the key that the axis is named after
      seed: [0, 1]
    also:                           # more points, beside the grid
      - label: DDP
        set: {subnetwork.coverage: 1}   # or `configs`, or both
        across: [seed]                  # each once for every value of these axes

Keys are dotted, or mappings as in an experiment. The trainer judges keys and values; its errors get the place in the
file.
"""

import difflib
import itertools
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sdp_lab.trainer import LabError

MOST_POINTS = 10_000


class Text(str):
    """A scalar as it is written. `line`: the value in YAML, on one line; `place`: where it is written."""

    line: str
    place: str


class List(list):
    line: str
    place: str


class Map(dict):
    place: str


EXPECTED = {
    Text: "a value",
    List: "a list",
    Map: "a mapping",
    List | Map: "a list of the key's values, or a mapping of named values",
}
FILES, SETTINGS = [Text], Map
SHAPE = {
    "name": Text,
    "configs": FILES,
    "set": SETTINGS,
    "grid": Map,
    "also": [{"label": Text, "configs": FILES, "set": SETTINGS, "across": [Text]}],
}


@dataclass
class Changes:
    """What a part of the sweep changes: all files come before all settings."""

    configs: list[str] = field(default_factory=list)
    set: dict[str, str] = field(default_factory=dict)  # dotted key -> value in YAML, on one line


@dataclass
class Point:
    """One run. `name` is its folder's, "regime=N,coverage=6-8,seed=0"; `label` is the same for runs that differ only in
    their seed, "N, coverage=6/8"; `values` has the full names of the axes."""

    name: str
    label: str
    configs: list[str]
    set: list[str]
    values: dict[str, str]
    part: int = 0  # 0: the grid; from 1 on: the additions


def fail(value: Any, where: str, message: str) -> NoReturn:
    raise LabError(f"{value.place}: {where + ': ' if where else ''}{message}")


def tree(node: yaml.Node, where: str = "") -> Any:
    if isinstance(node, yaml.ScalarNode):
        is_null = node.tag == "tag:yaml.org,2002:null"
        value: Any = Text("null" if is_null else node.value)
        # Other characters have a meaning in YAML.
        is_special = node.style or (not node.value and not is_null) or re.search(r"[,\[\]{}#&*!|>'\"%@`:\n]", node.value)
        value.line = json.dumps(node.value, ensure_ascii=False) if is_special else str(value)
    elif isinstance(node, yaml.SequenceNode):
        value = List(tree(item, where) for item in node.value)
        value.line = f"[{', '.join(item.line for item in value)}]"
    else:
        value = Map()
        for key, item in ((tree(key, where), item) for key, item in node.value):
            name = ".".join(filter(None, (where, check(key, Text, where))))
            if key in value:
                fail(key, name, "found a second time, expected once")
            value[key] = tree(item, name)
        value.line = f"{{{', '.join(f'{key.line}: {item.line}' for key, item in value.items())}}}"
    value.place = f"{node.start_mark.name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
    return value


def found(value: Any) -> str:
    if isinstance(value, Text):
        return "found nothing" if value.line in ("null", '""') else f"found '{value[:60]}'"
    return "found a list" if isinstance(value, List) else "found a mapping"


def check(value: Any, shape: Any, where: str) -> Any:
    """`shape`: a type, a list with the shape of its items, or a mapping of the known keys to theirs."""
    kind = List if isinstance(shape, list) else Map if isinstance(shape, dict) else shape
    if not isinstance(value, kind) or (kind is Text and found(value) == "found nothing"):
        fail(value, where, f"{found(value)}, expected {EXPECTED[kind]}")
    for item in value if isinstance(shape, list) else ():
        check(item, shape[0], where)
    for key in value if isinstance(shape, dict) else ():
        name = ".".join(filter(None, (where, key)))
        if key not in shape:
            fail(key, name, f"unknown key{similar(key, shape) or ', expected one of: ' + ', '.join(shape)}")
        check(value[key], shape[key], name)
    return value


def similar(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def known(value: Text, where: str, what: str, names: Iterable[str]) -> Text:
    if value not in list(names):
        fail(value, where, f"{found(value)}, expected {what}: {', '.join(names) or 'there is none'}{similar(value, names)}")
    return value


class SweepFile:
    def __init__(self, file: Path) -> None:
        self.folder = file.parent
        self.axes: dict[str, dict[str, Changes]] = {}  # name -> value -> what it changes
        self.keys: set[str] = set()  # axes whose name is the key that they set
        self.places: dict[str, str] = {}  # "key=value" -> where it is written
        try:
            with file.open(encoding="utf-8") as text:
                node = yaml.compose(text, Loader=yaml.SafeLoader)
        except (OSError, UnicodeDecodeError) as error:
            raise LabError(f"{file}: cannot be read: {error}") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise LabError(f"{file}:{mark.line + 1}:{mark.column + 1}: {error.problem}") from error
        if node is None:
            raise LabError(f"{file}: is empty, expected a mapping with the keys {', '.join(SHAPE)}")
        root = check(tree(node), Map, "")
        if not root.keys() & {"grid", "also"} and any(not similar(key, SHAPE) for key in root):
            message = "found an experiment, expected a sweep, which has `grid` or `also`. Train it with: sdp-train --config"
            fail(root, "", f"{message} {shlex.quote(str(file))}; or name it in a sweep: configs: [{file}]")
        check(root, SHAPE, "")
        if "name" not in root:
            fail(root, "name", "missing, expected the name of the sweep's folder")
        self.name = root["name"]
        if self.name.startswith(".") or "/" in self.name:
            fail(self.name, "name", f"{found(self.name)}, expected a folder name: no leading '.', no '/'")
        self.common = self._changes(root, "set")
        for axis, values in root.get("grid", {}).items():
            self.axes[axis] = self._axis(axis, values)
        self.also = root.get("also", [])
        if not self.axes and not self.also:
            fail(root, "", "there is nothing to run, expected `grid` or `also`")

    def _changes(self, part: dict, where: str) -> Changes:
        """What `configs` and `set` of a part of the file say."""
        changes = Changes([os.path.normpath(self.folder / name) for name in part.get("configs", [])])
        self._settings(part.get("set", {}), where, changes)
        return changes

    def _settings(self, settings: dict, where: str, changes: Changes, outer: str = "") -> None:
        """`outer`: the keys of the enclosing mappings."""
        for at, value in settings.items():
            key = outer + at
            if isinstance(value, Map):
                self._settings(value, where, changes, f"{key}.")
                continue
            if key == "name":
                fail(at, key, "the sweep names its runs itself")
            if key in changes.set:
                fail(at, key, "found a second time, expected once")
            changes.set[key] = value.line
            self.places.setdefault(f"{key}={value.line}", at.place if value.line == "null" else value.place)

    def _axis(self, name: Text, values: Any) -> dict[str, Changes]:
        where = f"grid.{name}"
        axis: dict[str, Changes] = {}
        if isinstance(check(values, List | Map, where), List):
            self.keys.add(name)
        for value in values:
            if name in self.keys:
                text, own = str(value) if isinstance(value, Text) else check(value, List, "").line, {"set": {name: value}}
            else:
                text, settings = value, dict(check(values[value], Map, f"{where}.{value}"))
                own = {"configs": check(settings.pop("configs", List()), FILES, f"{where}.{value}.configs"), "set": settings}
            if text in axis:
                fail(value, where, f"{found(value)} a second time, expected once")
            axis[text] = self._changes(own, f"{where}.{value}")
            for other, others in self.axes.items():
                if both := axis[text].set.keys() & {key for changes in others.values() for key in changes.set}:
                    fail(name, where, f"sets {min(both)}, which the axis {other} sets too")
        if not axis:
            fail(name, where, "found no value, expected at least one")
        return axis

    def points(self) -> list[Point]:
        """The grid, its first axis slowest, then the additions."""
        points = list(self._points_of(list(self.axes), Changes(), [], 0)) if self.axes else []
        for part, item in enumerate(self.also, 1):
            if "label" not in item:
                fail(item, "also.label", "missing, expected what the point is called")
            changes = self._changes(item, "also.set")
            for axis in item.get("across", []):
                if known(axis, "also.across", "an axis of `grid`", self.axes) in changes.set:
                    fail(axis, "also.across", f"{found(axis)}, which the point's `set` already sets")
            across = [axis for axis in self.axes if axis in item.get("across", [])]
            points += self._points_of(across, changes, [item["label"]], part)
        seen: dict[str, Point] = {}
        for point in points:
            if (first := seen.setdefault(point.name, point)) is not point:
                raise LabError(
                    f'two points of the sweep have the name {point.name}: "{first.label}" and "{point.label}". '
                    "Give one of them another label or value."
                )
        return points

    def _points_of(self, axes: list[str], own: Changes, label: list[str], part: int) -> Iterator[Point]:
        if (size := math.prod(len(self.axes[axis]) for axis in axes)) > MOST_POINTS:
            raise LabError(
                f"the sweep {self.name} has {size:,} points, more than {MOST_POINTS:,}. Divide it into several sweeps."
            )
        for names in itertools.product(*(self.axes[axis] for axis in axes)):
            chosen = dict(zip(axes, names, strict=True))
            changes = [self.common, *(self.axes[axis][name] for axis, name in chosen.items()), own]
            words = [f"{self._short(a)}={name}" if a in self.keys else name for a, name in chosen.items() if a != "seed"]
            values = chosen | {key: value for key, value in own.set.items() if key in self.keys}
            yield Point(
                name=",".join([*map(slug, label), *(f"{slug(self._short(a))}={slug(name)}" for a, name in chosen.items())]),
                label=", ".join([*label, *words]) or self.name,
                configs=[config for change in changes for config in change.configs],
                set=[f"{key}={value}" for change in changes for key, value in change.set.items()],
                values={axis: values[axis] for axis in self.axes if axis in values},
                part=part,
            )

    def _short(self, axis: str) -> str:
        """The last word of an axis's name, if only one axis has it."""
        last = axis.rpartition(".")[2]
        return last if [name.rpartition(".")[2] for name in self.axes].count(last) == 1 else axis


def slug(text: str) -> str:
    """A part of a folder name: what is special to shells or file systems becomes '-'."""
    return "-".join(filter(None, re.split(r"(?:(?![\w.+-])[\x00-\x7f]|\s)+", text)))
