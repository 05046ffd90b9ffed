"""A live table of runs in progress."""

import math
import signal
import sys
import time
from types import FrameType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sdp_lab.measures import OF_RUN, median
from sdp_lab.runs import Found, Run, find
from sdp_lab.table import bytes_text, count_text

REDRAW_SECONDS = 2
RECENT_LINES = 10
CELLS = 20
COLUMNS = ("run", "step", "done", "loss", "trend", "eval", "samples/s", "left", "tensor memory", "process memory")


def sparkline(values: list[float], cells: int = CELLS) -> str:
    """At most `cells` blocks, low to high; neighbors are averaged, and values that are not finite are spaces."""
    cells = min(cells, len(values))
    parts = [values[i * len(values) // cells : (i + 1) * len(values) // cells] for i in range(cells)]
    means = [sum(part) / len(part) for part in parts]
    finite = [mean for mean in means if math.isfinite(mean)]
    span = max(finite) - min(finite) if finite else 0
    return "".join(
        "▁▂▃▄▅▆▇█"[round(7 * (mean - min(finite)) / span) if span else 0] if math.isfinite(mean) else " " for mean in means
    )


def duration(seconds: float) -> str:
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{round(seconds) // 60}m {round(seconds) % 60:02}s" if seconds < 3599.5 else f"{minutes // 60}h {minutes % 60:02}m"


def cells_of(run: Run) -> list[str]:
    total = run.total_steps
    losses = [math.nan if line.get("loss") is None else line["loss"] for line in run.train]
    step_ms = median([line.get("step_ms") or math.nan for line in run.train[-RECENT_LINES:]])
    left = "finished" if run.is_finished else duration(max(0, total - run.step) * step_ms / 1000) if total else "-"
    last = run.evals[-1] if run.evals else {}
    score = last.get("loss" if run.is_of_tokens else "accuracy")
    memory = [OF_RUN[key](run) for key in ("peak_tensor_memory_bytes", "peak_process_memory_bytes")]
    return [
        run.name,
        f"{run.step}/{total or '?'}",
        f"{100 * run.step // total} %" if total else "-",  # rounded down: 100 % means done
        f"{losses[-1]:.4f}" if losses else "-",
        sparkline(losses),
        "-" if score is None else f"{score:.4f}" if run.is_of_tokens else f"{100 * score:.2f} %",
        count_text(run.train[-1].get("samples_per_s") or math.nan) if run.train else "-",
        left,
        *("-" if math.isnan(value) else bytes_text(value) for value in memory),
    ]


def view(found: Found) -> Group:
    table = Table(box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("run", "trend") else "right", no_wrap=True)
    for run in found.runs:
        table.add_row(*map(Text, cells_of(run)))
    finished = sum(run.is_finished for run in found.runs)
    lines = [Text(f"{len(found.runs)} run{'' if len(found.runs) == 1 else 's'}, {finished} finished"), table]
    lines += [Text(f"{folder}: cannot be read: {reason}") for folder, reason in found.unreadable]
    return Group(*lines, *(Text(f"{folder}: the same run as {counted}") for folder, counted in found.copies))


def stop(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def watch(paths: list[str]) -> int:
    """On a terminal until all runs are finished or SIGINT or SIGTERM arrives; otherwise prints the view once."""
    if not sys.stdout.isatty():
        Console(width=200).print(view(find(paths)))
        return 0
    signal.signal(signal.SIGTERM, stop)
    try:
        found = find(paths)
        with Live(view(found), auto_refresh=False) as live:
            while found.unreadable or not all(run.is_finished for run in found.runs):
                time.sleep(REDRAW_SECONDS)
                found = find(paths)
                live.update(view(found), refresh=True)
    except KeyboardInterrupt:
        pass
    return 0
