"""The figures of `analyze` show the numbers of its tables: what matplotlib's axes hold, against means written out here."""

import pandas
import pytest

from sdp_lab.analysis import Analysis, deviation_figure, figures, norm_figure, similarity_figure, training_figure

NAN = float("nan")
# (regime, step) -> by layer, the cosines and norms of the workers that own part of it.
LAYERS = {
    ("N-SDP", 0): [[(0.5, 1), (0.25, 3)], [(-0.125, 8)]],
    ("B-SDP", 0): [[(1, 2), (NAN, 0)], [(0.75, 4), (0.25, 4)]],
    ("N-SDP", 40): [[(1, 1), (1, 2)], [(0, 16), (1, 4)]],
    ("B-SDP", 40): [[(0.25, 2), (0.75, 2)], [(NAN, 0)]],
}
UNITS = {"N-SDP": [("a", 0, 4), ("a", 4, 8), ("b", 0, 2), ("b", 2, 6)], "B-SDP": [("a", 0, 8), ("b", 0, 6)]}
RATIOS = {"N-SDP": [0.5, 2, 0.25, NAN], "B-SDP": [0.125, 1]}
SUMMARY = [("N-SDP", 0, 0.5, 0.125), ("B-SDP", 0, 0.25, NAN), ("N-SDP", 40, 0.75, 0.25), ("B-SDP", 40, 0, NAN)]


def analysis(folder, steps=(0, 40), without=()):
    """The tables of some steps, without the columns of newer versions."""
    similarity = [
        {"regime": regime, "layer": f"l{depth}.weight", "depth": depth, "worker": w, "cosine": c, "step": step, "norm": n}
        for (regime, step), layers in LAYERS.items()
        for depth, workers in enumerate(layers)
        for w, (c, n) in enumerate(workers)
    ]
    deviation = [
        {"regime": regime, "branch": branch, "begin": begin, "end": end, "owners": "0 1", "ratio": ratio, "step": step}
        for regime, step in LAYERS
        for (branch, begin, end), ratio in zip(UNITS[regime], RATIOS[regime], strict=True)
    ]
    summary = [{"model": "m", "regime": r, "step": step, "cosine": c, "cosine_std": s} for r, step, c, s in SUMMARY]
    for name, rows in {"similarity": similarity, "deviation": deviation, "summary": summary}.items():
        table = pandas.DataFrame([row for row in rows if row["step"] in steps])
        if name not in without:
            table.drop(columns=without, errors="ignore").to_csv(folder / f"{name}.csv", index=False, na_rep="nan")
    return Analysis(folder)


def lines(figure):
    (axes,) = figure.axes
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


def bands(figure):
    """Of each band, low and high by x. Matplotlib goes along one edge and back along the other."""
    found = []
    for band in figure.axes[0].collections:
        points = [vertex for path in band.get_paths() for vertex in path.vertices]
        edges = pandas.DataFrame(points, columns=["x", "y"]).groupby("x")["y"].agg(["min", "max"])
        found.append({x: (low, high) for x, low, high in edges.itertuples()})
    return found


def same(points):
    return [pytest.approx(point, nan_ok=True) for point in points]


def test_similarity_is_the_mean_over_workers_with_their_deviation(tmp_path):
    figure = similarity_figure(analysis(tmp_path, steps=[0]))
    assert lines(figure) == {"N-SDP": same([(0, 0.375), (1, -0.125)]), "B-SDP": same([(0, 1), (1, 0.5)])}
    assert bands(figure) == [{0: (0.25, 0.5), 1: (-0.125, -0.125)}, {0: (1, 1), 1: (0.25, 0.75)}]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["l0", "l1"]
    assert "m: 2 workers, 2 owners per unit" in figure.axes[0].get_title(loc="left")


def test_several_steps_are_lines_of_their_own(tmp_path):
    figure = similarity_figure(analysis(tmp_path))
    assert lines(figure)["N-SDP at step 40"] == same([(0, 1), (1, 0.5)])
    assert lines(figure)["B-SDP at step 40"] == same([(0, 0.5), (1, NAN)])
    colors = {line.get_label(): (line.get_color(), line.get_alpha()) for line in figure.axes[0].lines}
    assert len(colors) == len(set(colors.values())) == 4
    assert colors["N-SDP at step 0"][0] == colors["N-SDP at step 40"][0] != colors["B-SDP at step 0"][0]


def test_norms_have_a_logarithmic_axis(tmp_path):
    figure = norm_figure(analysis(tmp_path, steps=[40]))
    assert lines(figure) == {"N-SDP": same([(0, 1.5), (1, 10)]), "B-SDP": same([(0, 2), (1, 0)])}
    assert figure.axes[0].get_yscale() == "log" and bands(figure) == []


def test_slices_of_a_branch_stand_side_by_side(tmp_path):
    figure = deviation_figure(analysis(tmp_path, steps=[0]))
    drawn = lines(figure)
    assert drawn["N-SDP"] == same([(-0.2, 0.5), (0.2, 2), (1 + 0.8 * (1 / 6 - 0.5), 0.25), (1 + 0.8 * (4 / 6 - 0.5), NAN)])
    assert drawn["B-SDP"] == same([(0, 0.125), (1, 1)])
    assert {y for _, y in drawn["bound"]} == {1} and figure.axes[0].get_yscale() == "log"


def test_training_is_one_line_per_regime_with_a_band_over_several_batches(tmp_path):
    figure = training_figure(analysis(tmp_path))
    assert lines(figure) == {"N-SDP": same([(0, 0.5), (40, 0.75)]), "B-SDP": same([(0, 0.25), (40, 0)])}
    assert bands(figure)[0] == {0: (0.375, 0.625), 40: (0.5, 1)}


@pytest.mark.parametrize("steps,without,names", [
    ([0, 40], [], "similarity deviation norm training"),
    ([0], ["step", "norm", "summary"], "similarity deviation"),  # before these existed
    ([0], [], "similarity deviation norm"),
])  # fmt: skip
def test_files(tmp_path, steps, without, names):
    analysis(tmp_path, steps, without)
    assert figures(tmp_path) == names.split()
    expected = {f"{name}.{ending}" for name in names.split() for ending in ("svg", "pdf")}
    assert {file.name for file in tmp_path.iterdir() if file.suffix != ".csv"} == expected
    assert "N-SDP" in (tmp_path / "similarity.svg").read_text()

