"""ResNet-18 of full width on all of CIFAR-10: the runs of configs/evidence/full_width.yaml with its first seed, eight workers on
one device. They take longer than one call: a run that the budget stops saves a checkpoint, and the next call continues from it."""

import json
import pathlib
import sys

from gpuhour.images import unpack_images
from gpuhour.jobs import GRACE_S, Context, LeftOut, OutOfTime, Row, Unfinished
from gpuhour.runs import lines_of
from gpuhour.steps import as_options

PREEMPTED = 75
SWEEP = pathlib.Path("configs/evidence/full_width.yaml")
STOP_BEFORE_END_S = GRACE_S + 5


def points(home: pathlib.Path) -> dict[str, list[str]]:
    """Options of the runs by name. The GPU machine lacks what reads a sweep's file, so pack.py calls this."""
    sys.path.insert(0, str(home / "python"))
    from sdp_lab.sweep_file import SweepFile

    sweep = SweepFile(home / SWEEP)
    first_seed = next(iter(sweep.axes["seed"]))
    return {
        point.label: [
            *(part for config in point.configs for part in ("--config", str(pathlib.Path(config).relative_to(home)))),
            *as_options(point.set),
        ]
        for point in sweep.points()
        if point.values["seed"] == first_seed
    }


def packed_points(home: pathlib.Path) -> dict[str, list[str]]:
    return json.loads((home / "pack" / "learning.json").read_text())


def settings_of(context: Context, epochs: int | None, data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    settings = [f"train.device={context.device}", f"data.path={data}", f"output.dir={folder}", "checkpoint.every_minutes=1"]
    if epochs:
        settings += [f"train.epochs={epochs}"]
    if not context.on_gpu:
        settings += ["model.width=8", "train.precision=fp32", "train.cuda_graph=false"]
    return as_options(settings)


def train(context: Context, label: str, epochs: int | None) -> list[Row]:
    images = context.home / "pack" / "cifar10.zip"
    if not images.exists():
        raise LeftOut("CIFAR-10 was not packed (--pack FOLDER --cifar10 DIR)")
    data = unpack_images(images, context.state / "data" / "cifar10")
    folder = context.scratch("learning")
    name = label.lower().replace("/", "-").replace(" ", "_")
    command = [context.binary, *packed_points(context.home)[label], "--nproc", "1", "--resume=if-any",
               "--set", f"name={name}", *settings_of(context, epochs, data, folder)]
    process = context.start(command, log=context.log / "run.txt")
    try:
        code = context.wait(process, context.left_s() - STOP_BEFORE_END_S)
    except OutOfTime:
        code = process.returncode
    run_dir = folder / name
    lines = lines_of(run_dir, "train")
    reached = f"step {lines[-1]['step']}, epoch {lines[-1]['epoch']:.2f}, loss {lines[-1]['loss']:.4f}" if lines else "no step"
    if code == PREEMPTED:
        raise Unfinished(f"{label}: stopped at {reached}; continues from its checkpoint at the next call")
    if code != 0:
        raise RuntimeError(f"{label}: exit code {code} at {reached}")
    evaluation = lines_of(run_dir, "eval")[-1]
    rate = sorted(line["samples_per_s"] for line in lines)[len(lines) // 2]
    return [Row(f"{label}, all of CIFAR-10 recompressed as JPEG, {lines[-1]['epoch']:.1f} epochs",
                f"assembled model {100 * evaluation['accuracy']:.2f} %, loss {evaluation['loss']:.4f}; {rate:.0f} samples/s")]
