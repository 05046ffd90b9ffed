"""Pictures of a plan, from plan.json as `sdp-train plan --out DIR` writes it."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sdp_lab.runs import read_json
from sdp_lab.style import INK, new_figure, save, unit_for
from sdp_lab.text import bytes_text

Plan = dict[str, Any]
KINDS = {"weights": "#0072b2", "gradients": "#e69f00", "optimizer": "#009e73", "activations": "#d55e00", "buckets": "#cc79a7"}
# Lane and colour of the parts of a step.
PARTS = {"forward": "#56b4e9", "backward": "#0072b2", "update": "#009e73", "waiting": "#d9d9d9", "exchange": "#d55e00"}
MOST_MARKED = 400  # cells with a border of their own
FARTHEST_ROOM = 3  # in largest peaks; a device with more is not drawn


def title(plan: Plan, what: str) -> str:
    owners = f"{plan['owners_per_unit']} owners per unit" if "owners_per_unit" in plan else f"coverage {plan['coverage']:.3g}"
    regime = f"{plan['construction']} construction, {plan['masking']} masking"
    return f"{what}\n{plan['model']}, {plan['workers']} workers, {owners}, {regime}"


def methods(plan: Plan) -> list[dict[str, Any]]:
    """Of the forecast, this plan first."""
    return plan["forecast"]["methods"]


def owners_figure(plan: Plan) -> Figure:
    """A row per worker, a column per unit."""
    units, workers = plan["units"], plan["workers"]
    figure, axes = new_figure(title(plan, "Owners of the units"), "", "worker", (6.4, 0.9 + 0.22 * min(workers, 24)))
    edge = {"edgecolor": "white", "linewidth": 0.8 if len(units) * workers <= MOST_MARKED else 0}
    for unit, figures in enumerate(units):
        axes.bar(
            [unit] * len(figures["owners"]), 0.9, 1, [w - 0.45 for w in figures["owners"]], color=PARTS["backward"], **edge
        )
    by_branch: dict[str, list[int]] = {}
    for unit, figures in enumerate(units):
        by_branch.setdefault(figures["branch"], []).append(unit)
    size = 6 if len(by_branch) <= 40 else 4
    axes.set_xticks([sum(own) / len(own) for own in by_branch.values()], list(by_branch), rotation=90, fontsize=size)
    step = -(-workers // 24)
    axes.set(xlim=(-0.6, len(units) - 0.4), ylim=(workers - 0.4, -0.6), yticks=range(0, workers, step))
    axes.grid(visible=False)
    return figure


def bars(plan: Plan, what: str, x_label: str) -> tuple[Figure, Any]:
    """Axes with a row per method, this plan on top."""
    names = [method["name"] for method in methods(plan)]
    figure, axes = new_figure(title(plan, what), x_label, "", (6.4, 0.9 + 0.25 * len(names)))
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    return figure, axes


def memory_figure(plan: Plan) -> Figure:
    """Peak of the process with the largest, by kind, against the room that the device has for tensors."""
    device = plan["forecast"]["device"]
    room = device["memory_bytes"] - device["allowance_bytes"] - device["library_workspace_bytes"]
    largest = max(method["peak_bytes"]["total"] for method in methods(plan))
    factor, unit = unit_for(largest, "bytes")
    x_label = f"peak ({unit}); one {device['name']} has room for {bytes_text(room)} of tensors"
    figure, axes = bars(plan, "Peak memory of a process, by kind", x_label)
    for row, method in enumerate(methods(plan)):
        left = 0.0
        for kind, color in KINDS.items():
            axes.barh(row, method["peak_bytes"][kind] / factor, 0.7, left, color=color)
            left += method["peak_bytes"][kind] / factor
    handles = [Patch(color=color, label=kind) for kind, color in KINDS.items()]
    if room <= FARTHEST_ROOM * largest:
        handles.append(axes.axvline(room / factor, color=INK, linestyle="dashed", label="room"))
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def sent_figure(plan: Plan) -> Figure:
    """Bytes that a process sends in a step."""
    sent = [method["bytes_sent_per_step"] for method in methods(plan)]
    factor, unit = unit_for(max(sent), "bytes")
    figure, axes = bars(plan, "Sent by a process in a step (of the process that sends most)", f"sent ({unit})")
    axes.barh(range(len(sent)), [value / factor for value in sent], 0.7, color=PARTS["exchange"])
    return figure


def spans(seconds: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Part, begin and duration in seconds, as the forecast adds them: new values are exchanged along the first forward
    pass, gradients along the last backward pass; what a pass does not hide is waited for."""
    compute, alongside = seconds["compute"], seconds["alongside"]
    at, result = 0.0, []

    def add(part: str, duration: float) -> None:
        nonlocal at
        result.append((part, at, duration))
        at += duration

    values, gradients, after = (seconds[f"exchange_{when}_s"] for when in ("forward", "backward", "after"))
    result.append(("exchange", 0.0, values))
    add("forward", alongside["forward_s"])
    add("waiting", max(0.0, values - alongside["forward_s"]))
    add("forward", max(0.0, compute["forward_s"] - alongside["forward_s"]))
    add("backward", max(0.0, compute["backward_s"] - alongside["backward_s"]))
    result.append(("exchange", at, gradients))
    add("backward", alongside["backward_s"])
    add("waiting", max(0.0, gradients - alongside["backward_s"]))
    result.append(("exchange", at, after))
    add("waiting", after)
    add("update", seconds["update_s"])
    return [span for span in result if span[2] > 0]


def timeline_figure(plan: Plan) -> Figure:
    """A step of each method's slowest process: above what it computes, below what its links carry. The passes of several
    micro-batches, which alternate, stand together."""
    x_label = f"time (ms), estimated for one {plan['forecast']['device']['name']} per process"
    figure, axes = bars(plan, "A step of the slowest process", x_label)
    for row, method in enumerate(methods(plan)):
        for part, begin, duration in spans(method["slowest_process"]):
            offset, height = (0.14, 0.18) if part == "exchange" else (-0.36, 0.46)
            axes.barh(row + offset, 1e3 * duration, height, 1e3 * begin, align="edge", color=PARTS[part])
    handles = [Patch(color=color, label=part) for part, color in PARTS.items()]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return figure


def figures(folder: Path) -> list[str]:
    """Writes them beside plan.json. Returns their names."""
    plan = read_json(folder / "plan.json", ["units", "workers"])
    drawn = {"owners": owners_figure}
    if "forecast" in plan:  # that of a run's folder has none
        drawn |= {"memory": memory_figure, "sent": sent_figure, "timeline": timeline_figure}
    for name, draw in drawn.items():
        save(draw(plan), folder, name)
    return list(drawn)
