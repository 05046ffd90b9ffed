"""ResNet-18 of full width on all of CIFAR-10: eight workers on one device, DDP and B-SDP 4/8 at equal FLOPs. The runs take
longer than one call: a run that the budget stops saves a checkpoint, and the next call continues from it."""

import pathlib

from gpuhour.images import unpack_images
from gpuhour.jobs import GRACE_S, Context, LeftOut, OutOfTime, Row, Unfinished
from gpuhour.runs import lines_of

PREEMPTED = 75
METHODS = {"DDP": "ddp", "B-SDP 4/8": "bsdp"}
STOP_BEFORE_END_S = GRACE_S + 5


def settings_of(context: Context, epochs: int, data: pathlib.Path, folder: pathlib.Path) -> list[str]:
    settings = [f"train.device={context.device}", f"data.path={data}", f"output.dir={folder}", "train.budget=flops",
                f"train.epochs={epochs}", "eval.every_epochs=0", "checkpoint.every_minutes=1"]
    if not context.on_gpu:
        settings += ["model.width=8", "train.precision=fp32"]
    return [part for setting in settings for part in ("--set", setting)]


def train(context: Context, method: str, epochs: int) -> list[Row]:
    images = context.home / "pack" / "cifar10.zip"
    if not images.exists():
        raise LeftOut("CIFAR-10 was not packed (--pack FOLDER --cifar10 DIR)")
    data = unpack_images(images, context.state / "data" / "cifar10")
    folder = context.scratch("learning")
    name = METHODS[method]
    command = [context.binary, "--config", context.home / "configs" / f"resnet18_{name}.yaml", "--nproc", "1",
               "--resume=if-any", "--set", f"name={name}", *settings_of(context, epochs, data, folder)]
    process = context.start(command, log=context.log / "run.txt")
    try:
        code = context.wait(process, context.left_s() - STOP_BEFORE_END_S)
    except OutOfTime:
        code = process.returncode
    run_dir = folder / name
    lines = lines_of(run_dir, "train")
    reached = f"step {lines[-1]['step']}, epoch {lines[-1]['epoch']:.2f}, loss {lines[-1]['loss']:.4f}" if lines else "no step"
    if code == PREEMPTED:
        raise Unfinished(f"{method}: stopped at {reached}; continues from its checkpoint at the next call")
    if code != 0:
        raise RuntimeError(f"{method}: exit code {code} at {reached}")
    evaluation = lines_of(run_dir, "eval")[-1]
    rate = sorted(line["samples_per_s"] for line in lines)[len(lines) // 2]
    return [Row(f"{method}, {epochs} epochs' FLOPs of DDP, all of CIFAR-10 recompressed as JPEG",
                f"assembled model {100 * evaluation['accuracy']:.2f} %, loss {evaluation['loss']:.4f}; {rate:.0f} samples/s")]
