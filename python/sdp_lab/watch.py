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

from sdp_lab.measures import median, peak_process_memory, peak_tensor_memory
from sdp_lab.runs import Found, Run, find
from sdp_lab.text import bytes_text, count_text, duration

REDRAW_SECONDS = 2
RECENT_LINES = 10


def cells_of(run: Run) -> dict[str, str]:
    total = run.total_steps
    line, score = (run.train or [{}])[-1], (run.evals or [{}])[-1].get("loss" if run.is_of_tokens else "accuracy")
    step_ms = median([line.get("step_ms") or math.nan for line in run.train[-RECENT_LINES:]])
    left = max(0, total - run.step) * step_ms / 1000 if total else math.nan
    memory = [peak_tensor_memory(run), peak_process_memory(run)]
    return {
        "run": run.name,
        "step": f"{run.step}/{total or '?'}",
        "done": f"{100 * run.step // total} %" if total else "-",  # rounded down: 100 % means done
        "loss": "-" if line.get("loss") is None else f"{line['loss']:.4f}",
        "eval": "-" if score is None else f"{score:.4f}" if run.is_of_tokens else f"{100 * score:.2f} %",
        "samples/s": count_text(line["samples_per_s"]) if line.get("samples_per_s") else "-",
        "left": "finished" if run.is_finished else duration(left) if math.isfinite(left) else "-",
        "tensor memory": "-" if math.isnan(memory[0]) else bytes_text(memory[0]),
        "process memory": "-" if math.isnan(memory[1]) else bytes_text(memory[1]),
    }


def view(found: Found) -> Group:
    table = Table(box=None, pad_edge=False)
    rows = [cells_of(run) for run in found.runs]
    for column in rows[0] if rows else ():
        table.add_column(column, justify="left" if column == "run" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row.values()))
    finished = sum(run.is_finished for run in found.runs)
    head = Text(f"{len(rows)} run{'' if len(rows) == 1 else 's'}, {finished} finished")
    return Group(head, table, *(Text(f"{folder}: {reason}") for folder, reason in found.left_out))


def stop(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def watch(paths: list[str]) -> int:
    """On a terminal until all runs are finished or SIGINT or SIGTERM arrives; otherwise prints the view once."""
    if not sys.stdout.isatty():
        Console(width=200).print(view(find(paths)))
        return 0
    signal.signal(signal.SIGTERM, stop)
    try:
        with Live(view(found := find(paths)), auto_refresh=False) as live:
            while not found.runs or not all(run.is_finished for run in found.runs):
                time.sleep(REDRAW_SECONDS)
                live.update(view(found := find(paths)), refresh=True)
    except KeyboardInterrupt:
        pass
    return 0
