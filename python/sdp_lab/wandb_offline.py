"""`sdp-train report --wandb DIR`: runs in the offline format of Weights & Biases, which `wandb sync DIR/wandb/*` uploads."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from sdp_lab.runs import Line, Run
from sdp_lab.trainer import LabError


def numbers(line: Line) -> Line:
    """The numbers of a line under KIND/KEY, as in TensorBoard; lists, by rank or worker, and nested values are left out."""
    shown = {key: value for key, value in line.items() if isinstance(value, int | float) and key != "step"}
    return {f"{line['kind']}/{key}": value for key, value in shown.items()}


def write(runs: Iterable[Run], folder: Path) -> None:
    try:
        import wandb
    except ModuleNotFoundError:
        raise LabError("--wandb needs the package wandb: pip install wandb", 2) from None
    folder.mkdir(parents=True, exist_ok=True)
    # Nothing about this machine and this process: the run was another one's.
    plain = wandb.Settings(quiet=True, console="off", disable_git=True, x_disable_stats=True, x_disable_meta=True)
    for run in runs:
        settings = {key: run.value(key) for key in run.options}
        names = {"project": "sdp-train", "name": run.name, "group": run.method, "id": run.history.get("id")}
        with wandb.init(**names, mode="offline", dir=folder, config=settings, settings=plain) as copy:
            for line in sorted(run.train + run.evals, key=lambda line: line["step"]):
                copy.log(numbers(line), step=line["step"])
            copy.summary.update(run.end or {})
    wandb.teardown()  # its service writes the files, and may still do so when a run's context has ended
    print(f"wrote {folder}; to upload: wandb sync {shlex.quote(str(folder))}/wandb/offline-run-*")
