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
    exclude:                        # points to leave out: all that have these values; several of one in a list
      - {regime: B, subnetwork.coverage: [4/8]}

Keys are dotted, or mappings as in an experiment. The trainer judges keys and values; its errors get the place in the
file.
"""

import difflib
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import yaml

from sdp_lab.trainer import LabError, ask

MOST_POINTS = 10_000
KEYS = ("name", "configs", "set", "grid", "also", "exclude")


@dataclass
class Changes:
    """What a part of the sweep changes: all files come before all settings."""

    configs: list[str] = field(default_factory=list)
    set: dict[str, str] = field(default_factory=dict)  # dotted key -> value in YAML, on one line


@dataclass
class Axis:
    name: str
    is_key: bool  # the name is the key, whose values these are
    values: dict[str, Changes]


@dataclass
class Addition:
    """A point beside the grid, or one for every combination of the values of some axes."""

    label: str
    changes: Changes
    across: list[str]


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


def place_of(node: yaml.Node) -> str:
    return f"{node.start_mark.name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def fail(node: yaml.Node, where: str, message: str) -> NoReturn:
    raise LabError(f"{place_of(node)}: {where + ': ' if where else ''}{message}")


def is_null(node: yaml.Node) -> bool:
    return node.tag == "tag:yaml.org,2002:null"


def text_of(node: yaml.Node) -> str:
    """A scalar's text as it is written; otherwise the value as YAML on one line, with the same meaning."""
    return node.value if isinstance(node, yaml.ScalarNode) and not is_null(node) else line_of(node)


def line_of(node: yaml.Node) -> str:
    if is_null(node):
        return "null"
    if isinstance(node, yaml.SequenceNode):
        return f"[{', '.join(map(line_of, node.value))}]"
    if not isinstance(node, yaml.ScalarNode):
        fail(node, "", "found a mapping, expected a value or a list")
    # Other characters have a meaning in YAML.
    is_special = node.style or not node.value or re.search(r"[,\[\]{}#&*!|>'\"%@`:\n]", node.value)
    return json.dumps(node.value, ensure_ascii=False) if is_special else node.value


def found(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "found nothing" if is_null(node) else f"found '{node.value[:60]}'"
    return "found a list" if isinstance(node, yaml.SequenceNode) else "found a mapping"


def similar(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


class SweepFile:
    def __init__(self, file: Path) -> None:
        self.folder = file.parent
        self.common = Changes()
        self.axes: dict[str, Axis] = {}
        self.also: list[Addition] = []
        self.exclusions: list[tuple[yaml.Node, dict[str, list[str]]]] = []
        self.places: dict[str, str] = {}  # "key=value" -> where it is written
        try:
            with file.open(encoding="utf-8") as text:
                root = yaml.compose(text, Loader=yaml.SafeLoader)
        except (OSError, UnicodeDecodeError) as error:
            raise LabError(f"{file}: cannot be read: {error}") from error
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            raise LabError(f"{file}:{mark.line + 1}:{mark.column + 1}: {error.problem}") from error
        if root is None:
            raise LabError(f"{file}: is empty, expected a mapping with the keys {', '.join(KEYS)}")
        self._read(file, root)

    def _read(self, file: Path, root: yaml.Node) -> None:
        keys = {key.value: key for key, _ in self._pairs(root, "", f"a mapping with the keys {', '.join(KEYS)}")}
        has_points = "grid" in keys or "also" in keys
        unknown = [key for key in keys if key not in KEYS]
        if unknown and not has_points and any(key in ask("spec", "--schema")["properties"] for key in unknown):
            message = "found an experiment, expected a sweep, which has `grid` or `also`."
            fail(
                root,
                unknown[0],
                f"{message} Train it with: sdp-train --config {file}; or name it in a sweep: configs: [{file}]",
            )
        sections = self._sections(root, "", KEYS)
        if "name" not in sections:
            fail(root, "name", "missing, expected the name of the sweep's folder")
        self.name = self._word(sections["name"], "name", "the name of the sweep's folder")
        if self.name.startswith(".") or "/" in self.name:
            fail(sections["name"], "name", f"{found(sections['name'])}, expected a folder name: no leading '.', no '/'")
        if "configs" in sections:
            self._configs(sections["configs"], "configs", self.common)
        if "set" in sections:
            self._settings(sections["set"], "set", self.common)
        if "grid" in sections:
            self._grid(sections["grid"])
        for item in self._items(
            sections.get("also"), "also", "a list of points, as {label: DDP, set: {subnetwork.coverage: 1}}"
        ):
            self.also.append(self._addition(item))
        for item in self._items(sections.get("exclude"), "exclude", "a list of points to leave out, as {AXIS: value}"):
            self._exclusion(item)
        if not self.axes and not self.also:
            fail(root, "", "there is nothing to run, expected `grid` or `also`")

    @staticmethod
    def _pairs(node: yaml.Node, where: str, expected: str) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            fail(node, where, f"{found(node)}, expected {expected}")
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                fail(key, where, f"{found(key)}, expected a key")
            if key.value in seen:
                fail(key, ".".join(filter(None, (where, key.value))), "found a second time, expected once")
            seen.add(key.value)
        return node.value

    def _sections(self, node: yaml.Node, where: str, keys: tuple[str, ...]) -> dict[str, yaml.Node]:
        pairs = self._pairs(node, where, f"a mapping with the keys {', '.join(keys)}")
        for key, _ in pairs:
            if key.value not in keys:
                name = ".".join(filter(None, (where, key.value)))
                fail(key, name, f"unknown key{similar(key.value, keys) or ', expected one of: ' + ', '.join(keys)}")
        return {key.value: value for key, value in pairs}

    @staticmethod
    def _items(node: yaml.Node | None, where: str, expected: str) -> list[yaml.Node]:
        if node is not None and not isinstance(node, yaml.SequenceNode):
            fail(node, where, f"{found(node)}, expected {expected}")
        return [] if node is None else node.value

    @staticmethod
    def _word(node: yaml.Node, where: str, expected: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or is_null(node) or not node.value:
            fail(node, where, f"{found(node)}, expected {expected}")
        return node.value

    def _configs(self, node: yaml.Node, where: str, changes: Changes) -> None:
        for item in self._items(node, where, "a list of YAML files, relative to this file"):
            changes.configs.append(os.path.normpath(self.folder / self._word(item, where, "the name of a YAML file")))

    def _settings(self, node: yaml.Node, where: str, changes: Changes, outer: str = "") -> None:
        """`outer`: the keys of the enclosing mappings."""
        for key, value in self._pairs(node, where, "a mapping of an experiment's keys, such as {optimizer.lr: 0.2}"):
            if not re.fullmatch(r"\w+(\.\w+)*", key.value):
                fail(key, where, f"{found(key)}, expected a key such as optimizer.lr")
            if isinstance(value, yaml.MappingNode):
                self._settings(value, where, changes, f"{outer}{key.value}.")
            else:
                self._setting(outer + key.value, value, key, changes)

    def _setting(self, key: str, value: yaml.Node, at: yaml.Node, changes: Changes) -> None:
        # A point's name is made of its values, and its folder is the sweep's.
        if key == "name":
            fail(at, key, "the sweep names its runs itself")
        if key == "output.dir" and changes is not self.common:
            fail(at, key, "the same for all runs, expected in the sweep's `set`")
        if key in changes.set:
            fail(at, key, "found a second time, expected once")
        changes.set[key] = line_of(value)
        self.places.setdefault(f"{key}={changes.set[key]}", place_of(at if is_null(value) else value))

    def _changes(self, node: yaml.Node, where: str) -> Changes:
        """Settings, which may include `configs`."""
        changes = Changes()
        pairs = self._pairs(node, where, "a mapping of an experiment's keys, such as {optimizer.lr: 0.2}")
        for key, value in pairs:
            if key.value == "configs":
                self._configs(value, f"{where}.configs", changes)
        rest = [pair for pair in pairs if pair[0].value != "configs"]
        self._settings(yaml.MappingNode(node.tag, rest, node.start_mark), where, changes)
        return changes

    def _grid(self, node: yaml.Node) -> None:
        axis_of_key: dict[str, str] = {}
        for name, values in self._pairs(node, "grid", "a mapping of axes"):
            axis = self.axes[name.value] = self._axis(name, values)
            for key in {key for changes in axis.values.values() for key in changes.set}:
                if key in axis_of_key:
                    fail(name, f"grid.{axis.name}", f"sets {key}, which the axis {axis_of_key[key]} sets too")
                axis_of_key[key] = axis.name

    def _axis(self, name: yaml.ScalarNode, node: yaml.Node) -> Axis:
        where = f"grid.{name.value}"
        axis = Axis(name.value, isinstance(node, yaml.SequenceNode), {})
        if axis.is_key:
            for item in node.value:
                if text_of(item) in axis.values:
                    fail(item, where, f"{found(item)} a second time, expected once")
                axis.values[text_of(item)] = changes = Changes()
                self._setting(axis.name, item, name if is_null(item) else item, changes)
        else:
            for value, changes in self._pairs(node, where, "a list of the key's values, or a mapping of named values"):
                axis.values[value.value] = self._changes(changes, f"{where}.{value.value}")
        if not axis.values:
            fail(name, where, "found no value, expected at least one")
        return axis

    def _addition(self, item: yaml.Node) -> Addition:
        sections = self._sections(item, "also", ("label", "configs", "set", "across"))
        if "label" not in sections:
            fail(item, "also.label", "missing, expected what the point is called")
        addition = Addition(self._word(sections["label"], "also.label", "what the point is called"), Changes(), [])
        if "configs" in sections:
            self._configs(sections["configs"], "also.configs", addition.changes)
        if "set" in sections:
            self._settings(sections["set"], "also.set", addition.changes)
        for node in self._items(sections.get("across"), "also.across", "a list of axes, such as [seed]"):
            axis = self._axis_named(node, "also.across")
            if axis.is_key and axis.name in addition.changes.set:
                fail(node, "also.across", f"{found(node)}, which the point's `set` already sets")
            if axis.name in addition.across:
                fail(node, "also.across", f"{found(node)} a second time, expected once")
            addition.across.append(axis.name)
        return addition

    def _exclusion(self, item: yaml.Node) -> None:
        axes = {}
        for key, node in self._pairs(item, "exclude", "a mapping of axes to values"):
            axis = self._axis_named(key, "exclude")
            values = node.value if isinstance(node, yaml.SequenceNode) else [node]
            for value in values:
                if text_of(value) not in axis.values:
                    self._refuse(value, f"exclude.{axis.name}", "a value of the axis", text_of(value), axis.values)
            axes[axis.name] = [text_of(value) for value in values]
        if not axes:
            fail(item, "exclude", "found no axis, expected at least one")
        self.exclusions.append((item, axes))

    def _axis_named(self, node: yaml.Node, where: str) -> Axis:
        name = self._word(node, where, "the name of an axis")
        if name not in self.axes:
            self._refuse(node, where, "an axis of `grid`", name, self.axes)
        return self.axes[name]

    @staticmethod
    def _refuse(node: yaml.Node, where: str, what: str, name: str, names: Iterable[str]) -> NoReturn:
        known = ", ".join(names) or "there is none"
        fail(node, where, f"{found(node)}, expected {what}: {known}{similar(name, names)}")

    def points(self) -> list[Point]:
        """The grid, its first axis slowest, then the additions, without the excluded points."""
        parts: list[Addition | None] = [None] if self.axes else []
        parts += self.also
        size = sum(math.prod(len(axis.values) for axis in self._axes_of(part)) for part in parts)
        if size > MOST_POINTS:
            sizes = ", ".join(f"{len(axis.values)} of {name}" for name, axis in self.axes.items())
            raise LabError(
                f"the sweep {self.name} has {size:,} points, more than {MOST_POINTS:,} (values of its axes: {sizes}). "
                "Divide it into several sweeps."
            )
        points = [point for part in parts for point in self._points_of(part)]
        for node, axes in self.exclusions:
            kept = [point for point in points if not all(point.values.get(axis) in values for axis, values in axes.items())]
            if len(kept) == len(points):
                fail(node, "exclude", "excludes no point, expected the values of an existing point")
            points = kept
        if not points:
            raise LabError(f"the sweep {self.name} has no point that is not excluded")
        seen: dict[str, Point] = {}
        for point in points:
            if first := seen.get(point.name):
                raise LabError(
                    f'two points of the sweep have the name {point.name}: "{first.label}" and "{point.label}". '
                    "Give one of them another label or value."
                )
            seen[point.name] = point
        return points

    def _axes_of(self, part: Addition | None) -> list[Axis]:
        return [axis for axis in self.axes.values() if part is None or axis.name in part.across]

    def _points_of(self, part: Addition | None) -> Iterator[Point]:
        axes = self._axes_of(part)
        for names in itertools.product(*(axis.values for axis in axes)):
            chosen = {axis.name: name for axis, name in zip(axes, names, strict=True)}
            changes = [self.common, *(axis.values[name] for axis, name in zip(axes, names, strict=True))]
            label = [
                f"{self._short(a.name)}={chosen[a.name]}" if a.is_key else chosen[a.name] for a in axes if a.name != "seed"
            ]
            name = [f"{slug(self._short(axis))}={slug(value)}" for axis, value in chosen.items()]
            values = chosen
            if part:
                changes.append(part.changes)
                label, name = [part.label, *label], [slug(part.label), *name]
                own = {key: value for key, value in part.changes.set.items() if key in self.axes and self.axes[key].is_key}
                values = {axis: (chosen | own)[axis] for axis in self.axes if axis in chosen | own}
            yield Point(
                name=",".join(name),
                label=", ".join(label) or self.name,
                configs=[config for change in changes for config in change.configs],
                set=[f"{key}={value}" for change in changes for key, value in change.set.items()],
                values=values,
                part=self.also.index(part) + 1 if part else 0,
            )

    def _short(self, axis: str) -> str:
        """The last word of an axis's name, if only one axis has it."""
        last = axis.rpartition(".")[2]
        return last if [name.rpartition(".")[2] for name in self.axes].count(last) == 1 else axis


def slug(text: str) -> str:
    """A part of a folder name: what is special to shells or file systems becomes '-'."""
    return "-".join(filter(None, re.split(r"(?:(?![\w.+-])[\x00-\x7f]|\s)+", text)))
