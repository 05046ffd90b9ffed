"""The figures of `analyze` and of a plan show the numbers of their tables and files: what matplotlib's axes hold,
against means and numbers written out here."""

import json

import pandas
import pytest

from sdp_lab import analysis, plan

NAN = float("nan")
# (regime, step) -> by layer, the cosines and norms of the workers that own part of it.
LAYERS = {
    ("N-SDP", 0): [[(0.5, 1), (0.25, 3)], [(-0.125, 8)]],
    ("B-SDP", 0): [[(1, 2), (NAN, 0)], [(0.75, 4), (0.25, 4)]],
    ("N-SDP", 40): [[(1, 1), (1, 2)], [(0, 16), (1, 4)]],
    ("B-SDP", 40): [[(0.25, 2), (0.75, 2)], [(NAN, 0)]],
}
UNITS = {"N-SDP": [("a", 0, 4, 0.5), ("a", 4, 8, 2), ("b", 0, 2, 0.25), ("b", 2, 6, NAN)],
         "B-SDP": [("a", 0, 8, 0.125), ("b", 0, 6, 1)]}
SUMMARY = [("N-SDP", 0, 0.5, 0.125), ("B-SDP", 0, 0.25, NAN), ("N-SDP", 40, 0.75, 0.25), ("B-SDP", 40, 0, NAN)]
TABLES = {
    "similarity": [
        {"regime": regime, "layer": f"l{depth}.weight", "depth": depth, "worker": w, "cosine": c, "step": step, "norm": n}
        for (regime, step), layers in LAYERS.items() for depth, ws in enumerate(layers) for w, (c, n) in enumerate(ws)
    ],
    "deviation": [
        {"regime": regime, "branch": branch, "begin": begin, "end": end, "owners": "0 1", "ratio": ratio, "step": step}
        for regime, step in LAYERS for branch, begin, end, ratio in UNITS[regime]
    ],
    "summary": [{"model": "m", "regime": r, "step": step, "cosine": c, "cosine_std": s} for r, step, c, s in SUMMARY],
}  # fmt: skip


def tables_of(folder, steps=(0, 40), without=()):
    """Of some steps, without the columns of newer versions."""
    for name, rows in TABLES.items():
        table = pandas.DataFrame([row for row in rows if row["step"] in steps])
        if name not in without:
            table.drop(columns=without, errors="ignore").to_csv(folder / f"{name}.csv", index=False, na_rep="nan")
    return analysis.Analysis(folder)


def lines(figure):
    return {line.get_label(): line.get_xydata().tolist() for line in figure.axes[0].lines}


def bands(figure):
    """Of each band, low and high by x. Matplotlib goes along one edge and back along the other."""
    found = []
    for band in figure.axes[0].collections:
        points = [vertex for path in band.get_paths() for vertex in path.vertices]
        edges = pandas.DataFrame(points, columns=["x", "y"]).groupby("x")["y"].agg(["min", "max"])
        found.append({x: (low, high) for x, low, high in edges.itertuples()})
    return found


def bars(figure):
    return [(bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()) for bar in figure.axes[0].patches]


LAST = 1 + 0.8 * (1 / 6 - 0.5), 1 + 0.8 * (4 / 6 - 0.5)  # slices of a branch stand side by side


@pytest.mark.parametrize("draw,steps,expected,band,scale", [
    (analysis.similarity_figure, [0], {"N-SDP": [(0, 0.375), (1, -0.125)], "B-SDP": [(0, 1), (1, 0.5)]},
     [{0: (0.25, 0.5), 1: (-0.125, -0.125)}, {0: (1, 1), 1: (0.25, 0.75)}], "linear"),
    (analysis.similarity_figure, [0, 40],
     {"N-SDP at step 40": [(0, 1), (1, 0.5)], "B-SDP at step 40": [(0, 0.5), (1, NAN)],
      "N-SDP at step 0": [(0, 0.375), (1, -0.125)], "B-SDP at step 0": [(0, 1), (1, 0.5)]}, None, "linear"),
    (analysis.norm_figure, [40], {"N-SDP": [(0, 1.5), (1, 10)], "B-SDP": [(0, 2), (1, 0)]}, [], "log"),
    (analysis.deviation_figure, [0], {"N-SDP": [(-0.2, 0.5), (0.2, 2), (LAST[0], 0.25), (LAST[1], NAN)],
     "B-SDP": [(0, 0.125), (1, 1)]}, None, "log"),
    (analysis.training_figure, [0, 40], {"N-SDP": [(0, 0.5), (40, 0.75)], "B-SDP": [(0, 0.25), (40, 0)]},
     [{0: (0.375, 0.625), 40: (0.5, 1)}, {}], "linear"),
])  # fmt: skip
def test_means_over_workers_with_their_deviation(tmp_path, draw, steps, expected, band, scale):
    figure = draw(tables_of(tmp_path, steps))
    drawn = lines(figure)
    if draw == analysis.deviation_figure:
        assert {y for _, y in drawn.pop("bound")} == {1}
    assert drawn == {label: [pytest.approx(p, nan_ok=True) for p in points] for label, points in expected.items()}
    assert band is None or bands(figure) == band
    assert figure.axes[0].get_yscale() == scale
    colors = {line.get_label(): (line.get_color(), line.get_alpha()) for line in figure.axes[0].lines}
    if len(colors) == 4:
        assert len(set(colors.values())) == 4
        assert colors["N-SDP at step 0"][0] == colors["N-SDP at step 40"][0] != colors["B-SDP at step 0"][0]
    if draw == analysis.similarity_figure:
        assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["l0", "l1"]
        assert "m: 2 workers, 2 owners per unit" in figure.axes[0].get_title(loc="left")


@pytest.mark.parametrize("steps,without,names", [
    ([0, 40], [], "similarity deviation norm training"),
    ([0], ["step", "norm", "summary"], "similarity deviation"),  # before these existed
    ([0], [], "similarity deviation norm"),
])  # fmt: skip
def test_files_of_an_analysis(tmp_path, steps, without, names):
    tables_of(tmp_path, steps, without)
    assert analysis.figures(tmp_path) == names.split()
    expected = {f"{name}.{ending}" for name in names.split() for ending in ("svg", "pdf")}
    assert {file.name for file in tmp_path.iterdir() if file.suffix != ".csv"} == expected
    assert "N-SDP" in (tmp_path / "similarity.svg").read_text()


# --- of a plan ----------------------------------------------------------------------------------------------------

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


def test_owners_memory_and_bytes_sent_of_a_plan(tmp_path):
    cells = {(round(x + width / 2), round(y + height / 2)) for x, y, width, height in bars(plan.owners_figure(PLAN))}
    assert cells == {(unit, owner) for unit, figures in enumerate(PLAN["units"]) for owner in figures["owners"]}
    drawn = bars(plan.memory_figure(PLAN))
    assert [width for _, _, width, _ in drawn] == [1, 0.5, 0.25, 2, 0, 2, 1, 1, 4, 0.5]
    assert [x for x, *_ in drawn[:5]] == [0, 1, 1.5, 1.75, 3.75]
    (room,) = plan.memory_figure(PLAN).axes[0].lines
    assert list(room.get_xdata()) == [8, 8]
    assert [width for _, _, width, _ in bars(plan.sent_figure(PLAN))] == [3, 6]
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    expected = {f"{name}.{end}" for name in plan.figures(tmp_path) for end in ("svg", "pdf")}
    assert {path.name for path in tmp_path.iterdir()} == {"plan.json", *expected}
    (tmp_path / "plan.json").write_text(json.dumps({key: value for key, value in PLAN.items() if key != "forecast"}))
    assert plan.figures(tmp_path) == ["owners"]  # of a run's folder


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
    for part, begin, duration in plan.spans(method("x", (0,) * 5, 0, **seconds)["slowest_process"]):
        found.setdefault(part, []).append((begin, duration))
    assert {key: found[key] for key in expected} == expected
    assert max(begin + duration for parts in found.values() for begin, duration in parts) == step
    assert bars(plan.timeline_figure(PLAN))
