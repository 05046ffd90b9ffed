"""`sdp-train report`: compares runs in tables, figures and a page."""

import argparse
import sys
from pathlib import Path

from sdp_lab.groups import Group, group_runs
from sdp_lab.runs import Found, Run, find
from sdp_lab.table import Table, make_table, to_format
from sdp_lab.trainer import LabError

NOTES = """Accuracies and losses are those of the assembled full model in its last evaluation; "uncorrected" is without
BatchNorm recalibration and branch scale; "subnetworks" are the workers' subnetworks. ± is the sample standard deviation over
runs that differ only in their seed. In parentheses: × the ratio to the baseline, or the difference from it (of accuracies in
points). FLOPs are those of training, of all workers. Tensor memory is the largest peak of a process's tensors in training;
process memory is that of a whole process, resident on a CPU and reserved on a GPU, with evaluations. Times are medians over
the lines of the metrics; their parts are means over the processes (waiting for data: the longest). FLOP/s are those of the
plan. Utilization is their share of the devices' peak. Training accuracy is that of the subnetworks on the augmented images of
the last line. Parameters are those of the largest worker.
"""


def notes_of(groups: list[Group], table: Table, found: Found) -> list[str]:
    """What the page and report.md say below the table."""
    notes = [NOTES.replace("\n", " ").strip()]
    notes += [f"Baseline: {'; '.join(table.baselines)}."] if table.baselines else []
    runs = [(run, run.plan["processes"]) for group in groups for run in group.runs if run.end]
    machines = {f"{n} process{'' if n == 1 else 'es'} on {r.end['device']}, sdp-train {r.end['version']}" for r, n in runs}
    notes += [f"Finished on: {machine}." for machine in sorted(machines)]
    return notes + [f"Left out: {folder}: {reason}" for folder, reason in found.left_out]


def line_of(group: Group, run: Run) -> str:
    state = "finished at step" if run.is_finished else "unfinished, step"
    source = run.history.get("imported")
    origin = f", first weights imported from {source['path']} (XXH3-128 {source['xxh3_128']})" if source else ""
    return f"- {group.label}: `{run.folder}`, seed {run.value('seed')}, {state} {run.step}{origin}"


def write_report(groups: list[Group], table: Table, found: Found, arguments: argparse.Namespace) -> None:
    from sdp_lab.figures import write_figures  # matplotlib takes a second to start
    from sdp_lab.page import page

    folder: Path = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    form = {"wanted": arguments.columns, "pivot": arguments.pivot}
    markdown = to_format(table, "markdown", **form)
    (folder / "table.md").write_text(markdown)
    (folder / "table.tex").write_text(to_format(table, "latex", **form))
    (folder / "table.csv").write_text(to_format(table, "csv"))
    pictures = write_figures(groups, folder)
    notes = notes_of(groups, table, found)
    shown = "\n".join(f"![{caption}]({name}.svg)\n" for name, caption in pictures.items())
    runs = "\n".join(line_of(group, run) for group in groups for run in group.all_runs)
    text = [f"# Report\n\n{markdown}", *notes, "## Runs", runs, "## Figures", shown]
    (folder / "report.md").write_text("\n\n".join(text))
    (folder / "report.html").write_text(page(groups, table, notes))
    print(f"wrote {folder / 'report.html'}, report.md, tables and {len(pictures)} figures as PDF and SVG")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="sdp-train report", description="Compares runs: accuracy, memory, time and traffic; tables, figures and a page."
    )
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="run folders, or folders or zip archives to search for runs")
    add("--out", type=Path, metavar="DIR", help="folder for tables, figures, report.md and report.html")
    add("--format", choices=["text", "markdown", "latex", "csv"], help="of the printed table (default: text)")
    add("--baseline", default="", metavar="LABEL", help="the row to compare with: its label or the beginning of it, or a "
        "condition such as coverage=1; rows are compared with the one that agrees in whatever else differs")  # fmt: skip
    add("--columns", default="", metavar="KEY,...", help="measures by their names in table.csv, or all")
    add("--label", choices=["settings", "run"], default="settings", help="what rows are called by: what differs, or the "
        "runs' names")  # fmt: skip
    add("--pivot", default="", metavar="ROWS×COLUMNS", help="the score by two options, as in coverage×lr; the best is marked")
    add("--wandb", type=Path, metavar="DIR", help="write the runs in the offline format of Weights & Biases, for wandb sync")
    add("--watch", action="store_true", help="show the progress of the runs until all are finished or Ctrl-C")
    parsed = parser.parse_args(arguments)
    if parsed.watch and parsed.out:
        parser.error("--watch shows runs in progress; it cannot be used with --out")
    return parsed


def main(arguments: list[str]) -> int:
    parsed = parse(arguments)
    if parsed.watch:
        from sdp_lab.watch import watch

        return watch(parsed.paths)
    found = find(parsed.paths)
    if not found.runs:
        reasons = "".join(f"\n  {folder}: {reason}" for folder, reason in found.left_out)
        raise LabError(f"none of the runs can be read:{reasons}", 3)
    for folder, reason in found.left_out:
        print(f"warning: left out: {folder}: {reason}", file=sys.stderr)
    if parsed.wandb:
        from sdp_lab import wandb_offline

        wandb_offline.write(found.runs, parsed.wandb)
        return 0
    groups = group_runs(found.runs)
    table = make_table(groups, parsed.baseline)
    if parsed.label == "run":
        for group in groups:
            group.head, group.told = ", ".join(run.name for run in group.runs), {}
    if parsed.out:
        write_report(groups, table, found, parsed)
    if not parsed.out or parsed.format:
        print(to_format(table, parsed.format or "text", parsed.columns, parsed.pivot), end="")
    return 0
