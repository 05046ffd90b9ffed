"""Medians, ranges and ratios of what a contest measured, and their table."""

import statistics
from collections.abc import Callable

SLOWER = 1.03  # than before: a configuration beyond it fails
PARTS = ("forward", "backward", "exchange", "optimizer")
NOTES = """
- ms/step: median over rounds of the median over intervals of 10 steps, without the first; range: of the rounds' medians.
  Ratios are of these medians. Programs take turns, so that other load affects all of them.
- The parts of a step: ours as metrics.jsonl has them, in the timed steps; PyTorch's by timers around its calls in steps after
  them. Backward contains exchange. Exchange is what a process waits for it: ours by its own clock; DDP's as the
  longer backward pass than with no_sync, below 0 by chance; FSDP2's cannot be told apart. Forward includes the loss, and
  with ours the gradients of a language model's head, so that the logits need not be kept.
- MiB: of the process with the most, its resident memory at the peak; on a GPU, what the allocator has reserved.
- FLOP/s: FLOPs of the plan, all processes, over ms/step; PyTorch's are those of C = 1. Share: of the product rate of the
  devices in use, where a CPU is one device.
- PyTorch has our number of threads, and keeps freed memory in huge pages by settings of glibc, which come close to our
  allocator; it cannot be loaded into PyTorch. "As users start it": torchrun's threads and malloc as it is. In bf16, PyTorch's
  parameters have no master values, and ours have.
"""


def summarize(case: dict, rate: float, devices: int) -> dict:
    """Adds to every run of the case its medians and ratios."""
    runs = case["runs"]
    good = [run for run in runs if not run["error"]]
    for run in good:
        medians = [statistics.median(measured["step_ms"]) for measured in run["rounds"]]
        run["ms"], run["range_ms"] = statistics.median(medians), [min(medians), max(medians)]
        run["process_bytes"] = max(max(measured["process_bytes"]) for measured in run["rounds"])
        run["parts_ms"] = {
            part: statistics.median(measured["parts_ms"][part] for measured in run["rounds"])
            for part in PARTS
            if part in run["rounds"][0]["parts_ms"]
        }

    def ms_of(is_wanted: Callable[[dict], bool]) -> float | None:
        return min((run["ms"] for run in good if is_wanted(run)), default=None)

    dense = next((run["rounds"][0]["dense_flops"] for run in good if run["side"] == "ours"), None)
    for run in good:
        others = {
            "to_fastest_peer": ms_of(lambda other: other["side"] == "peer"),
            "to_own_whole": ms_of(lambda other: other["side"] == "ours" and other["variant"] != "half"),
        }
        if run["side"] == "ours":
            others["to_before"] = ms_of(lambda o, variant=run["variant"]: o["side"] == "before" and o["variant"] == variant)
        run |= {name: run["ms"] / ms for name, ms in others.items() if ms}
        if flops := run["rounds"][0].get("flops", dense):
            run["flops_per_s"] = 1000 * flops / run["ms"]
            run["share_of_product_rate"] = run["flops_per_s"] / (rate * devices) if rate else None
    return case


def problems(cases: list[dict]) -> list[str]:
    found = []
    for case in cases:
        of_ours = {run["rounds"][0]["parameters"] for run in case["runs"] if run["rounds"] and run["side"] == "ours"}
        for run in case["runs"]:
            what = f"{case['model']}, {case['processes']} processes: {run['label']}"
            if run["error"]:
                found.append(f"{what} failed: {run['error']}")
            elif of_ours and run["rounds"][0]["parameters"] not in of_ours:
                found.append(f"{what} is another model: {run['rounds'][0]['parameters']} parameters, ours {of_ours}")
            elif run.get("to_before", 0) > SLOWER:
                found.append(f"{what} takes {run['to_before']:.3f} of its time before")
    return found


def table(header: list[str], rows: list[list]) -> str:
    """Markdown that is aligned as text, too: the first column to the left, the others to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * widths[0]] + ["-" * (width - 1) + ":" for width in widths[1:]]
    cells = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in (header, rule, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def text_of(results: dict) -> str:
    ratios = {"to_fastest_peer": "/ fastest peer", "to_own_whole": "/ ours, C = 1", "to_before": "/ before"}
    runs = [run for case in results["cases"] for run in case["runs"]]
    shown = [name for name in ratios if any(name in run for run in runs)]
    header = ["", "ms/step", "range", *(ratios[name] for name in shown), *PARTS, "MiB", "GFLOP/s", "share"]
    rate = results["product_flops_per_s"]
    told = f"{rate / 1e9:.0f} GFLOP/s in matrix products" if rate else "product rate not known"
    text = f"{results['device']}, {told}, {results['precision']}, PyTorch {results['torch']}, {results['rounds']} rounds.\n"
    number = lambda value, form: "" if value is None else format(value, form)  # noqa: E731
    for case in results["cases"]:
        rows = []
        for run in case["runs"]:
            if run["error"]:
                rows.append([run["label"], "failed", *[""] * (len(header) - 2)])
                continue
            low, high = run["range_ms"]
            row = [run["label"], f"{run['ms']:.1f}", f"{low:.1f} to {high:.1f}"]
            row += [number(run.get(name), ".2f") for name in shown]
            row += [number(run["parts_ms"].get(part), ".1f") for part in PARTS]
            row += [f"{run['process_bytes'] / 2**20:.0f}", number(run.get("flops_per_s", 0) / 1e9 or None, ".1f")]
            rows.append([*row, number(run.get("share_of_product_rate"), ".2f")])
        loads = ", ".join(f"{load:.1f}" for load in case["loads"])
        text += f"\n## {case['model']}, processes: {case['processes']}, threads of each: {case['threads']}\n\n"
        text += table(header, rows) + "\n\n"
        text += f"Load before each round: {loads}.\n"
        text += "".join(f"Left out: {left['label']}: {left['reason']}.\n" for left in case["left_out"])
    bad = problems(results["cases"])
    return text + "".join(f"\n**{problem}**\n" for problem in bad) + NOTES
