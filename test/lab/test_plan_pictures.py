"""The pictures of a plan show the numbers of plan.json: what matplotlib's axes hold, against numbers written out here."""

import json

import pytest

from sdp_lab.plan import figures, memory_figure, owners_figure, sent_figure, spans, timeline_figure

GIB = 2**30
KINDS = ("weights", "gradients", "optimizer", "activations", "buckets")


def method(name, gib, sent, **seconds):
    peak = {kind: int(value * GIB) for kind, value in zip(KINDS, gib, strict=True)}
    return {"name": name, "peak_bytes": {"total": sum(peak.values()), **peak}, "bytes_sent_per_step": sent, "slowest_process": {
        "compute": {"forward_s": 1.0, "backward_s": 2.0}, "alongside": {"forward_s": 1.0, "backward_s": 2.0},
        "exchange_forward_s": 0.0, "exchange_backward_s": 0.0, "exchange_after_s": 0.0, "update_s": 0.5, **seconds}}  # fmt: skip


PLAN = {
    "model": "m", "workers": 4, "owners_per_unit": 2, "construction": "block", "masking": "forward",
    "units": [{"branch": "a", "owners": [0, 1]}, {"branch": "b", "owners": [2, 3]}, {"branch": "b", "owners": [0, 3]}],
    "forecast": {
        "device": {"name": "x1", "memory_bytes": 10 * GIB, "allowance_bytes": GIB, "library_workspace_bytes": GIB},
        "methods": [method("this plan", (1, 0.5, 0.25, 2, 0), 3 * GIB), method("DDP", (2, 1, 1, 4, 0.5), 6 * GIB)],
    },
}  # fmt: skip


def bars(figure):
    return [(bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()) for bar in figure.axes[0].patches]


def test_owners():
    cells = {(round(x + width / 2), round(y + height / 2)) for x, y, width, height in bars(owners_figure(PLAN))}
    assert cells == {(unit, owner) for unit, figures in enumerate(PLAN["units"]) for owner in figures["owners"]}


def test_memory_and_bytes_sent():
    drawn = bars(memory_figure(PLAN))
    assert [width for _, _, width, _ in drawn] == [1, 0.5, 0.25, 2, 0, 2, 1, 1, 4, 0.5]
    assert [x for x, *_ in drawn[:5]] == [0, 1, 1.5, 1.75, 3.75]
    (room,) = memory_figure(PLAN).axes[0].lines
    assert list(room.get_xdata()) == [8, 8]
    assert [width for _, _, width, _ in bars(sent_figure(PLAN))] == [3, 6]


@pytest.mark.parametrize("seconds,expected,step", [
    ({"exchange_forward_s": 0.5}, {"exchange": [(0, 0.5)]}, 3.5),  # hidden
    ({"exchange_forward_s": 1.5}, {"exchange": [(0, 1.5)], "waiting": [(1, 0.5)]}, 4.0),
    ({"exchange_backward_s": 3.0}, {"exchange": [(1, 3)], "waiting": [(3, 1)]}, 4.5),
    ({"exchange_after_s": 1.0}, {"exchange": [(3, 1)], "waiting": [(3, 1)], "update": [(4, 0.5)]}, 4.5),
    # Two micro-batches: the exchange overlaps the first forward and the last backward pass.
    ({"alongside": {"forward_s": 0.5, "backward_s": 1.0}, "exchange_backward_s": 1.0}, {"exchange": [(2, 1)]}, 3.5),
])  # fmt: skip
def test_the_timeline_adds_up_to_the_step(seconds, expected, step):
    found = {}
    for part, begin, duration in spans(method("x", (0,) * 5, 0, **seconds)["slowest_process"]):
        found.setdefault(part, []).append((begin, duration))
    assert {key: found[key] for key in expected} == expected
    assert max(begin + duration for parts in found.values() for begin, duration in parts) == step
    assert bars(timeline_figure(PLAN))


def test_files(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    expected = {f"{name}.{end}" for name in figures(tmp_path) for end in ("svg", "pdf")}
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", *expected}
    (tmp_path / "plan.json").write_text(json.dumps({key: value for key, value in PLAN.items() if key != "forecast"}))
    assert figures(tmp_path) == ["owners"]  # of a run's folder
