"""Measures, comparisons and the formats of tables."""

import csv
import io
import json
import math
import re
from pathlib import Path

import pytest
from small_runs import write_run

from sdp_lab import report
from sdp_lab.frames import curve_values
from sdp_lab.groups import group_runs
from sdp_lab.runs import find
from sdp_lab.table import make_table, to_format
from sdp_lab.text import bytes_text, count_text
from sdp_lab.trainer import LabError


def table_of(folder, baseline=""):
    return make_table(group_runs(find([folder]).runs), baseline)


def rows_of(table):
    return {row["label"]: row for row in csv.DictReader(io.StringIO(to_format(table, "csv")))}


@pytest.fixture
def grid(tmp_path):
    """Coverage × lr, with data parallelism; accuracies that are easy to tell apart."""
    for owners, base in ((2, 0.5), (3, 0.6), (4, 0.7)):
        for i, lr in enumerate((0.05, 0.1, 0.2)):
            write_run(tmp_path / f"{owners}_{i}", owners=owners, accuracy=base + 0.01 * (2 if i == 1 else i),
                      optimizer={"lr": lr, "shard": False})  # fmt: skip
    return tmp_path


def test_measures_of_a_run(tmp_path):
    write_run(tmp_path / "a")
    (row,) = rows_of(table_of(tmp_path)).values()
    expected = {
        "accuracy": 0.5, "loss_nats": 1.25, "steps": 40, "epochs": 1, "training_flops": 40 * 2 * 4 * 2000, "step_ms": 30,
        "peak_tensor_memory_bytes": 410, "peak_weights_bytes": 400, "exchange_wait_ms": 2, "sent_bytes_per_step": 6,
        "largest_worker_parameters": 200, "peak_tensor_memory_per_worker_bytes": 205,
    }  # fmt: skip
    assert {key: float(row[key]) for key in expected} == expected
    assert row["accuracy_std"] == "" and "perplexity" not in row


def test_units_with_different_numbers_of_owners_have_a_mean_coverage(tmp_path):
    rules = {"rules": [{"match": "blocks.0", "coverage": "1"}]}
    for owners, changes in ((2, {}), (2.5, {"subnetwork": rules})):
        write_run(tmp_path / str(owners), owners=owners, train={"max_steps": None, "epochs": 5, "budget": "coverage"}, **changes)
    rows = rows_of(table_of(tmp_path)).values()
    assert sorted(row["coverage"] for row in rows) == ["0.625", "2/4"]
    assert sorted(run.share for run in find([tmp_path]).runs) == [0.5, 0.625]


def test_epochs_of_a_run_whose_steps_changed(tmp_path):
    """20 steps as planned, then with other samples per step: each line has what was consumed until then."""
    for key, epochs in (
        ("subnetwork.workers", (0.25, 0.5, 1.5, 2.5)), ("train.accumulate_steps", (0.25, 0.5, 0.6, 0.7)),
        ("train.batch_size_per_worker", (1, 2, 2.5, 3)),
    ):  # fmt: skip
        history = {"changes": [{"step": 20, "key": key, "was": "1", "now": "4"}]}
        folder = write_run(tmp_path / key, history=history, finished=False, train={"max_steps": None, "epochs": 9})
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for line, epoch in zip((line for line in lines if line["kind"] == "train"), epochs, strict=True):
            line["epoch"], line["flops_per_s"] = epoch, 1e3
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (run,) = find([folder]).runs
        (row,) = rows_of(table_of(folder)).values()
        assert float(row["epochs"]) == pytest.approx(epochs[-1])
        # The rest of the 9 epochs takes steps as the last ones.
        assert run.total_steps == round(40 + (9 - epochs[-1]) / (epochs[-1] - epochs[1]) * 20)


@pytest.mark.parametrize("ends", [(10, 20, 21, 30), (3, 10, 20, 30), (10, 11, 12, 20, 29, 30), (10, 17, 20, 30)])
def test_a_training_curve_has_no_points_of_single_steps(tmp_path, ends):
    """A checkpoint ends a line early. Every point is the mean over train.log_every_steps steps, or a few more."""
    step_losses = [math.sin(step) + 3 for step in range(30)]
    folder = write_run(tmp_path / "a")
    lines = [
        {"kind": "train", "step": end, "epoch": end / 30, "step_ms": 1.0, "loss": sum(step_losses[begin:end]) / (end - begin)}
        for begin, end in zip((0, *ends), ends)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run,) = find([folder]).runs
    begins = {end: max(begin for begin in (0, *ends) if begin <= max(0, end - 10)) for end in ends}
    expected = [sum(step_losses[begins[end] : end]) / (end - begins[end]) for end in ends]
    assert curve_values(run, run.train, "loss") == pytest.approx(expected)
    assert curve_values(run, run.train, "accuracy") == pytest.approx([math.nan] * len(ends), nan_ok=True)


def test_baseline_agrees_in_whatever_else_differs(grid):
    for baseline in ("coverage=1", "DDP", "subnetwork.coverage=1", "method=DDP"):
        rows = rows_of(table_of(grid, baseline))
        for label, row in rows.items():
            lr = label.rpartition(" ")[2]
            difference = float(row["accuracy"]) - float(rows[f"DDP, lr {lr}"]["accuracy"])
            assert float(row["accuracy_minus_baseline"]) == pytest.approx(difference, abs=1e-12), (baseline, label)
    fixed = rows_of(table_of(grid, "DDP, lr 0.1"))
    assert float(fixed["B-SDP 2/4, lr 0.2"]["accuracy_minus_baseline"]) == pytest.approx(0.52 - 0.72)
    lr = rows_of(table_of(grid, "lr=0.05"))
    assert float(lr["B-SDP 3/4, lr 0.1"]["accuracy_minus_baseline"]) == pytest.approx(0.02)
    for wrong in ("N-SDP", "coverage=1/9", "colour=red"):
        with pytest.raises(LabError, match="DDP, lr 0.1"):
            table_of(grid, wrong)


def test_pivot(grid):
    lines = to_format(table_of(grid), "text", pivot="coverage×lr").splitlines()
    assert re.split(r"\s{2,}", lines[1]) == ["coverage / lr", "0.05", "0.1", "0.2"]
    cells = [re.split(r"\s{2,}", line) for line in lines[3:]]
    assert [row[0] for row in cells] == ["1", "2/4", "3/4"]
    assert cells[1][1:] == ["50.00", "52.00 *", "52.00 *"] and cells[0][1] == "70.00"
    latex = to_format(table_of(grid), "latex", pivot="lr,coverage")
    assert latex.count("\\textbf{") == 3 and "\\textbf{70.00}" in latex
    for wrong in ("coverage", "coverage,colour", "a×b×c"):
        with pytest.raises(LabError, match="pivot"):
            to_format(table_of(grid), "text", pivot=wrong)


def test_documents_have_a_few_columns_and_others_on_request(grid):
    table = table_of(grid, "coverage=1")
    for form, separator in (("markdown", " | "), ("latex", " & ")):
        lines = to_format(table, form).splitlines()
        (header,) = (line for line in lines if line.lstrip("| ").startswith("configuration"))
        assert 4 <= header.count(separator) + 1 <= 8
    assert to_format(table, "markdown", "steps,step_ms").splitlines()[0] == "| configuration | runs | steps | step time (ms) |"
    assert "activations" not in to_format(table, "text", "all")
    with pytest.raises(LabError, match="colour.*accuracy"):
        to_format(table, "markdown", "steps,colour")


def test_special_characters_and_numbers_for_people(tmp_path):
    change = {"step": 5, "key": "optimizer.lr", "was": "0.3", "now": "0.1"}
    write_run(tmp_path / "a", history={"changes": [change]}, finished=False)
    (tmp_path / "sweep.json").write_text(json.dumps({"runs": [{"folder": "a", "label": "50% a_b & c|d"}]}))
    latex, markdown = (to_format(table_of(tmp_path), form) for form in ("latex", "markdown"))
    assert "50\\% a\\_b \\& c|d" in latex and "accuracy (\\%)" in latex and latex.count("\\\\\n") == 2
    assert "50% a\\_b & c\\|d" in markdown and "unfinished: step 40 of 40" in markdown
    assert all("optimizer.lr 0.3, 0.1 from step 5" in text for text in (latex, markdown))
    sizes = {0: "0 B", 512: "512 B", 1536: "1.50 KiB", 1023.9 * 1024: "1.00 MiB", 1.25 * 2**30: "1.25 GiB"}
    counts = {7: "7", 999: "999", 12345: "12.3 k", -1.5e12: "-1.50 T", float("inf"): "inf"}
    assert {value: bytes_text(value) for value in sizes} == sizes
    assert {value: count_text(value) for value in counts} == counts


def test_folder(grid, capsys):
    out = grid / "deep" / "report"
    assert report.main([str(grid), "--baseline", "coverage=1", "--out", str(out)]) == 0
    names = {path.name for path in out.iterdir()}
    figures = {path.stem for path in out.iterdir() if path.suffix == ".pdf"}
    assert {"report.md", "report.html", "table.md", "table.tex", "table.csv", "accuracy_coverage.svg"} <= names
    assert len(figures) == 10 and all(f"{name}.svg" in names for name in figures)
    text = (out / "report.md").read_text()
    assert (out / "table.md").read_text() in text and all(f"]({name}.svg)" in text for name in figures)
    page = (out / "report.html").read_text()
    assert 'src="http' not in page and "<link" not in page and "B-SDP 2/4, lr 0.05" in page
    # A label is text, not a formula.
    (grid / "sweep.json").write_text(json.dumps({"runs": [{"folder": "2_0", "label": r"$x_{ & \alpha\frac$"}]}))
    assert report.main([str(grid / "2_0"), "--out", str(grid / "one")]) == 0
    # One colour per method, and an ink that follows the page, also without style sheets.
    svg = (out / "accuracy_coverage.svg").read_text()
    assert all(text in svg for text in ("#0072b2", "prefers-color-scheme", "stroke: #111111", "fill: #111111")) and "var(" not in svg
    assert str(out) in capsys.readouterr().out


# --- the committed studies, whose tables another program wrote first -------------------------------------------------

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "results" / "evidence"
# Names and arguments, from the script that makes the reports.
STUDIES = dict(re.findall(r"^report (\w+) (.+)$", (ROOT / "scripts" / "committed_reports").read_text(), re.MULTILINE))


@pytest.mark.parametrize("study", STUDIES)
def test_table_of_a_committed_study(study, monkeypatch):
    monkeypatch.chdir(EVIDENCE)
    arguments = report.parse(STUDIES[study].split())
    text = to_format(make_table(group_runs(find(arguments.paths).runs), arguments.baseline), "csv")
    expected = {row["label"]: row for row in csv.DictReader((EVIDENCE / f"report_{study}" / "table.csv").open())}
    found = {row["label"]: row for row in csv.DictReader(io.StringIO(text))}
    assert len(expected) >= 5 and found.keys() == expected.keys()
    for label, row in expected.items():
        assert {key: found[label][key] for key in row} == row, label


def test_every_committed_table_is_compared():
    assert {path.parent.name for path in EVIDENCE.glob("report_*/table.csv")} == {f"report_{name}" for name in STUDIES}
