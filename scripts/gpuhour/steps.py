"""Steps of large models: memory and time compared with the plan's forecast and with PyTorch, and where the time of a step is spent."""

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

from gpuhour.jobs import Context, Job, Row, judged

MEMORY_WITHIN = (0.95, 1.05)
GIB = 2**30
METHODS = ("bsdp", "nsdp", "bbsdp", "nbsdp", "ddp", "zero1", "zero2")

# For each model its configuration and settings; below, small sizes for a CPU.
MODELS = {
    "llama_1b": ("llama_1b_fineweb", ["train.accumulate_steps=1"]),
    "llama_134m": ("llama_134m_fineweb", ["train.accumulate_steps=1"]),
    "swin_t": ("swin_t_cifar10", []),
    "resnet18": ("resnet18_cifar10", []),
}
ON_CPU = {
    "llama_1b": ["model.width=128", "model.hidden_width=352", "model.depth=4", "model.heads=4", "model.vocab_size=1024",
                 "data.sequence_length=64", "train.batch_size_per_worker=2", "train.precision=fp32"],
    "swin_t": ["model.width=24", "model.heads=3", "train.batch_size_per_worker=2", "train.precision=fp32"],
    "resnet18": ["model.width=16", "train.batch_size_per_worker=4", "train.precision=fp32"],
}
ON_CPU["llama_134m"] = ON_CPU["llama_1b"]


def settings_of(context: Context, model: str) -> list[str]:
    settings = [*MODELS[model][1], f"train.device={context.device}", *(() if context.on_gpu else ON_CPU[model])]
    data = "pack/tokens" if model.startswith("llama") else "pack/images"
    return [part for setting in [*settings, f"data.path={data}"] for part in ("--set", setting)]


def config_of(context: Context, model: str, method: str) -> list:
    folder = context.home / "configs"
    return ["--config", folder / f"{MODELS[model][0]}.yaml", folder / "regime" / f"{method}.yaml"]


def measured_step(context: Context, model: str, method: str) -> dict:
    text = context.sdp("plan", *config_of(context, model, method), *settings_of(context, model), "--measure", "--json",
                       log_name=f"{model}-{method}")
    return json.loads(text[text.index("{"):])


def measure(context: Context, model: str, method: str) -> list[Row]:
    measured = measured_step(context, model, method)
    have, planned = measured["measured_bytes"]["peak"], measured["predicted_bytes"]["peak"]
    ratio = planned / have
    context.scratch("steps").joinpath(f"{model}-{method}.json").write_text(json.dumps(measured))
    return [
        judged(f"{model} {method}: peak of one worker of 8", f"{have / GIB:.3f} GiB, planned {ratio:.3f} of it",
               MEMORY_WITHIN[0] <= ratio <= MEMORY_WITHIN[1]),
        Row(f"{model} {method}: step of one worker",
            f"{measured['step_ms']:.1f} ms, planned {measured['predicted_step_ms'] / measured['step_ms']:.2f} of it"),
    ]


def parameters_of(context: Context, model: str) -> int:
    text = context.sdp("plan", *config_of(context, model, "ddp"), *settings_of(context, model), "--json",
                       log_name=f"{model}-plan")
    return json.loads(text[text.index("{"):])["per_worker"][0]["parameters"]


def against_pytorch(context: Context, model: str, how: str) -> list[Row]:
    file = context.scratch("steps") / f"{model}-ddp.json"
    ours = json.loads(file.read_text()) if file.exists() else measured_step(context, model, "ddp")
    command = [context.environment["PYTHON"], pathlib.Path(__file__).with_name("torch_steps.py"), "--model", model,
               "--device", context.device, "--how", how, *([] if context.on_gpu else ["--small"])]
    try:
        theirs = json.loads(context.run(command, log_name=f"{model}-pytorch-{how}").strip().splitlines()[-1])
    except RuntimeError as error:
        return [Row(f"{model}: PyTorch, {how}", f"did not run, {error}")]
    held = parameters_of(context, model)
    peak = f"; peak {theirs['peak_bytes'] / GIB:.3f} GiB, ours {ours['measured_bytes']['peak'] / GIB:.3f} GiB"
    rows = [Row(f"{model}: PyTorch, {how}",
                f"{theirs['step_ms']:.1f} ms, ours {ours['step_ms'] / theirs['step_ms']:.2f} of it"
                + (peak if context.on_gpu else ""))]
    if theirs["parameters"] != held:
        rows.append(Row(f"{model}: parameters", f"PyTorch {theirs['parameters']}, ours {held}", "FAIL"))
    return rows


def union_us(intervals: list[tuple[float, float]]) -> float:
    """The length of the union of intervals (begin, end)."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def kernels_of(trace: pathlib.Path, on_gpu: bool) -> tuple[float, float, list[tuple[str, float]]]:
    """The span and busy time of a Chrome trace, in us, and the kernels that take the most time. On a CPU, the
    outermost operations count as kernels."""
    wanted = {"kernel", "gpu_memcpy", "gpu_memset"} if on_gpu else {"cpu_op"}
    events = [event for event in json.loads(trace.read_text())["traceEvents"]
              if event.get("ph") == "X" and event.get("cat") in wanted]
    if not events:
        raise RuntimeError(f"{trace.name} has no events of {', '.join(sorted(wanted))}")
    intervals = [(event["ts"], event["ts"] + event["dur"]) for event in events]
    by_name: dict[str, float] = collections.defaultdict(float)
    reached: dict[tuple, float] = {}
    for event in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        line = (event["pid"], event["tid"])
        if event["ts"] >= reached.get(line, float("-inf")):
            by_name[event["name"]] += event["dur"]
            reached[line] = event["ts"] + event["dur"]
    span = max(end for _, end in intervals) - min(begin for begin, _ in intervals)
    return span, union_us(intervals), sorted(by_name.items(), key=lambda item: -item[1])


def wait_for_trace(context: Context, process: subprocess.Popen, trace: pathlib.Path) -> None:
    """Waits until the trace is written, then kills the run: saving a large model would take longer than everything before."""
    while process.poll() is None and context.left_s() > 10:
        try:
            json.loads(trace.read_text())
            break
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.2)
    code = process.poll()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if not trace.exists():
        raise RuntimeError(f"no {trace.name}, exit code {code}; see profile.txt")


def profile(context: Context, model: str) -> list[Row]:
    """Profiles two steps of two half-sized workers in one process by kernel."""
    folder = context.fresh(f"profile-{model}")
    settings = ["subnetwork.workers=2", "subnetwork.coverage=1/2", "train.max_steps=1000", "train.profile_steps=2",
                "train.log_every_steps=1", "schedule.warmup_steps=0", "checkpoint.every_epochs=0", "eval.max_samples=4",
                "eval.recalibrate_batches=0", f"output.dir={folder}", f"name={model}"]
    settings = [part for setting in settings for part in ("--set", setting)]
    trace = folder / model / "profile-rank-0.json"
    process = context.start([context.binary, *config_of(context, model, "bsdp"), *settings_of(context, model), *settings,
                             "--nproc", 1], log=context.log / "profile.txt")
    wait_for_trace(context, process, trace)
    span, busy, kernels = kernels_of(trace, context.on_gpu)
    largest = "; ".join(f"{name[:60]} {100 * us / busy:.0f} %" for name, us in kernels[:4])
    (context.log / f"{model}-kernels.txt").write_text("".join(f"{us:12.1f} us  {name}\n" for name, us in kernels))
    return [Row(f"{model}: two steps of two workers", f"{span / 1000:.1f} ms, idle {100 * (1 - busy / span):.1f} %"),
            Row(f"{model}: largest kernels", largest)]


def jobs(device: str) -> list[Job]:
    gpu = device == "cuda"
    result = []
    for model in MODELS:
        seconds = 30 if gpu and model == "llama_1b" else 14 if gpu else 12
        for method in METHODS:
            result.append(Job("steps", f"{model} {method}", seconds, 8 * seconds,
                              lambda context, case=(model, method): measure(context, *case)))
        for how in ("eager", "compiled"):
            seconds = 60 if how == "compiled" else 25
            result.append(Job("steps", f"{model} pytorch {how}", seconds, (3 if gpu else 8) * seconds,
                              lambda context, case=(model, how): against_pytorch(context, *case)))
        result.append(Job("steps", f"{model} profile", 40, 120, lambda context, model=model: profile(context, model)))
    return result
