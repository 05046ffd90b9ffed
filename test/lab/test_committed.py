"""The committed studies give the numbers of their committed tables, which another program wrote first, to the last digit."""

import csv
import io
from pathlib import Path

import pytest

from sdp_lab.groups import group_runs
from sdp_lab.runs import find
from sdp_lab.table import make_table, to_csv

EVIDENCE = Path(__file__).parents[2] / "docs" / "results" / "evidence"
STUDIES = {
    "curve": (["curve20", "curve60", "curve200"], "DDP"),
    "full": (["full"], "DDP"),
    "full60": (["full", "full60"], "DDP"),
    "llama": (["llama"], "DDP"),
    "lr": (["lr"], ""),
}


@pytest.mark.parametrize("study", STUDIES)
def test_table(study, monkeypatch):
    monkeypatch.chdir(EVIDENCE.parents[2])
    folders, baseline = STUDIES[study]
    text = to_csv(make_table(group_runs(find(EVIDENCE / folder for folder in folders).runs), baseline))
    expected = {row["label"]: row for row in csv.DictReader((EVIDENCE / f"report_{study}" / "table.csv").open())}
    found = {row["label"]: row for row in csv.DictReader(io.StringIO(text))}
    assert len(expected) >= 5 and found.keys() == expected.keys()
    for label, row in expected.items():
        assert {key: found[label][key] for key in row} == row, label
