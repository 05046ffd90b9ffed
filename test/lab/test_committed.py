"""The committed studies give the numbers of their committed tables, which another program wrote first, to the last digit."""

import csv
import io
import re
from pathlib import Path

import pytest

from sdp_lab import report
from sdp_lab.groups import group_runs
from sdp_lab.runs import find
from sdp_lab.table import make_table, to_csv

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "results" / "evidence"
# Names and arguments, from the script that makes the reports.
STUDIES = dict(re.findall(r"^report (\w+) (.+)$", (ROOT / "scripts" / "committed_reports").read_text(), re.MULTILINE))


@pytest.mark.parametrize("study", STUDIES)
def test_table(study, monkeypatch):
    monkeypatch.chdir(EVIDENCE)
    arguments = report.parse(STUDIES[study].split())
    text = to_csv(make_table(group_runs(find(arguments.paths).runs), arguments.baseline))
    expected = {row["label"]: row for row in csv.DictReader((EVIDENCE / f"report_{study}" / "table.csv").open())}
    found = {row["label"]: row for row in csv.DictReader(io.StringIO(text))}
    assert len(expected) >= 5 and found.keys() == expected.keys()
    for label, row in expected.items():
        assert {key: found[label][key] for key in row} == row, label


def test_every_committed_table_is_compared():
    assert {path.parent.name for path in EVIDENCE.glob("report_*/table.csv")} == {f"report_{name}" for name in STUDIES}
