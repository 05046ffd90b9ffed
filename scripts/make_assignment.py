#!/usr/bin/env python3
"""Makes an assignment file, the owner sets that `subnetwork.assignment: file` reads, from a table of owners.

    build/sdp-train plan --config X.yaml --json > plan.json
    scripts/make_assignment.py plan.json owners.csv > assignment.json
    build/sdp-train plan --config X.yaml --set subnetwork.assignment=file --set subnetwork.assignment_file=assignment.json

plan.json lists the units of the model; its own owners are ignored. The table is CSV with the header `branch,owners` or
`branch,begin,end,owners`, or JSON, a list of objects with these keys. `branch` may have * and ?; `owners` are numbers of
workers, in CSV separated by spaces. `begin` and `end` are the hidden range of a unit; where they are empty or missing, a row is
for all units of the branch. The first row that matches a unit gives its owners. A unit without a row and a row without a unit
are errors.

Exit status: 0, or 2 if the files do not fit (the message says where).
"""

import argparse
import csv
import fnmatch
import json
import pathlib
import sys


def read_table(path: pathlib.Path) -> list[dict]:
    """Rows with branch, begin, end (None: any) and owners."""
    text = path.read_text()
    is_json = text.lstrip().startswith("[")
    rows = json.loads(text) if is_json else list(csv.DictReader(text.splitlines()))
    table = []
    for number, row in enumerate(rows, start=1 if is_json else 2):
        try:
            owners = row["owners"] if is_json else row["owners"].split()
            begin, end = (None if row.get(key) in (None, "") else int(row[key]) for key in ("begin", "end"))
            table.append({"branch": row["branch"], "begin": begin, "end": end, "owners": sorted(int(o) for o in owners)})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            kind = "row" if is_json else "line"
            raise ValueError(
                f"{path}: {kind} {number}: {row}: expected branch, owners and maybe begin and end ({error!r})"
            ) from None
    return table


def fits(row: dict, unit: dict) -> bool:
    ranges = all(row[key] is None or row[key] == unit[key] for key in ("begin", "end"))
    return ranges and fnmatch.fnmatchcase(unit["branch"], row["branch"])


def assignment_of(units: list[dict], table: list[dict]) -> tuple[list[dict], list[str]]:
    """The units with the table's owners, and what does not fit."""
    problems = [
        f"no unit fits the row {row['branch']} {row['begin']}..{row['end']}"
        for row in table
        if not any(fits(row, unit) for unit in units)
    ]
    result = []
    for unit in units:
        row = next((row for row in table if fits(row, unit)), None)
        if row is None:
            problems.append(f"no row fits the unit {unit['branch']}[{unit['begin']}:{unit['end']}]")
        else:
            result.append({key: unit[key] for key in ("branch", "begin", "end")} | {"owners": row["owners"]})
    return result, problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=pathlib.Path, help="output of `sdp-train plan --json`")
    parser.add_argument("table", type=pathlib.Path, help="CSV or JSON")
    options = parser.parse_args()
    try:
        units, problems = assignment_of(json.loads(options.plan.read_text())["units"], read_table(options.table))
    except (OSError, ValueError, KeyError) as error:
        units, problems = [], [str(error)]
    if problems:
        print("error: " + "\n  ".join(problems), file=sys.stderr)
        return 2
    print(json.dumps({"units": units}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
