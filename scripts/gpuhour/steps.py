"""Steps of large models: memory and time against the plan's forecast and PyTorch, and where the time of a step is spent."""

import collections
import json
import os
import pathlib
import statistics
import subprocess
import time
from collections.abc import Iterator

from benchmark.models import model_of
from benchmark.peers import Peer, run_peer
from gpuhour.images import write_noise_images
from gpuhour.jobs import Context, Row, judged
from gpuhour.runs import lines_of

MEMORY_WITHIN = (0.95, 1.05)
GIB, MIB = 2**30, 2**20
METHODS = ("ddp", "bsdp", "nsdp", "bbsdp", "nbsdp", "zero1", "zero2")
BATCH = {"cuda": 64, "cpu": 4}  # of each of eight workers
WORKERS, RUN_STEPS, LOGGED_STEPS, PROFILED_STEPS = 8, 50, 10, 2
TRACE_KERNELS, TRACE_EVENTS, TRACE_NAME = 12, 10_000, 200

# For each model its configuration and settings; below, the benchmark's name of its sizes, and of small ones for a CPU.
MODELS = {
    "llama_1b": ("llama_1b_fineweb", ["train.accumulate_steps=1"]),
    "llama_134m": ("llama_134m_fineweb", ["train.accumulate_steps=1"]),
    "swin_t": ("swin_t_cifar10", []),
    "resnet18": ("resnet18_cifar10", []),
}
SIZES = {
    "llama_1b": {"cuda": "llama_1b", "cpu": "llama_1.3m_b2"},
    "llama_134m": {"cuda": "llama_134m", "cpu": "llama_1.3m_b2"},
    "swin_t": {"cuda": "swin_t", "cpu": "swin_t_w24_b2"},
    "resnet18": {"cuda": "resnet18", "cpu": "resnet18_w16_b4"},
}
PRECISION = {"cuda": "bf16", "cpu": "fp32"}
TORCH_STEPS = ["--steps", 8, "--interval", 1, "--warm-up", 3]


def as_options(settings: list[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def settings_of(context: Context, model: str) -> list[str]:
    sizes = model_of(SIZES[model][context.device])
    settings = [f"{section}.{key}={size}" for section, values in sizes.sizes().items() for key, size in values.items()]
    settings += [*MODELS[model][1], f"train.device={context.device}", f"train.precision={PRECISION[context.device]}"]
    return as_options([*settings, f"data.path=pack/{'tokens' if sizes.is_text else 'images'}"])


def config_of(context: Context, model: str, method: str) -> list:
    folder = context.home / "configs"
    return ["--config", folder / f"{MODELS[model][0]}.yaml", folder / "regime" / f"{method}.yaml"]


def profile_option(context: Context, option: str) -> list:
    """The rates that the job doctor measured, if it could."""
    profile = context.state / "profile.json"
    return [option, profile] if profile.exists() else []


def measured_step(context: Context, model: str, method: str) -> dict:
    text = context.sdp("plan", *config_of(context, model, method), *settings_of(context, model), "--measure", "--json",
                       *profile_option(context, "--device"), log_name=f"{model}-{method}")
    measured = json.loads(text[text.index("{"):])
    context.scratch("steps").joinpath(f"{model}-{method}.json").write_text(json.dumps(measured))
    return measured


def measure(context: Context, model: str, method: str) -> list[Row]:
    measured = measured_step(context, model, method)
    have, planned = measured["measured_bytes"], measured["predicted_bytes"]
    ratio = planned["peak"] / have["peak"]
    workspace, expected = have["library_workspace"], planned["library_workspace"]
    return [
        judged(f"{model} {method}: peak of one worker of 8", f"{have['peak'] / GIB:.3f} GiB, planned {ratio:.3f} of it",
               MEMORY_WITHIN[0] <= ratio <= MEMORY_WITHIN[1]),
        judged(f"{model} {method}: cuBLAS's workspace in addition", f"{workspace / MIB:.1f} MiB, planned {expected / MIB:.1f}",
               workspace == expected),
        Row(f"{model} {method}: step of one worker",
            f"{measured['step_ms']:.1f} ms, planned {measured['predicted_step_ms'] / measured['step_ms']:.2f} of it"),
    ]


def parameters_of(context: Context, model: str) -> int:
    text = context.sdp("plan", *config_of(context, model, "ddp"), *settings_of(context, model), "--json",
                       log_name=f"{model}-plan")
    return json.loads(text[text.index("{"):])["per_worker"][0]["parameters"]


def torch_step(context: Context, sizes: str, how: str) -> dict:
    """PyTorch's, compiled on a CPU without generated code: it may have no compiler."""
    images = "" if model_of(sizes).is_text else "-channels_last"
    options = ["--device", context.device, "--precision", PRECISION[context.device], *TORCH_STEPS,
               "--backend", "inductor" if context.on_gpu else "aot_eager"]
    peer = Peer(f"ddp-fused{'-compiled' if how == 'compiled' else ''}{images}")
    told = run_peer(context, peer, sizes, options, processes=1, threads=os.cpu_count() or 1)
    return told | {"step_ms": statistics.median(told["step_ms"])}


def against_pytorch(context: Context, model: str, how: str) -> Iterator[Row]:
    """A step of one worker that holds the whole model, and PyTorch's."""
    theirs = torch_step(context, SIZES[model][context.device], how)
    file = context.scratch("steps") / f"{model}-ddp.json"
    ours = json.loads(file.read_text()) if file.exists() else measured_step(context, model, "ddp")
    # PyTorch's peak includes cuBLAS's workspace.
    our_peak = ours["measured_bytes"]["peak"] + ours["measured_bytes"]["library_workspace"]
    peak = f"; peak {theirs['peak_bytes'] / GIB:.3f} GiB, ours {our_peak / GIB:.3f} GiB" if context.on_gpu else ""
    yield Row(f"{model}: PyTorch, {how}", f"{theirs['step_ms']:.1f} ms, ours {ours['step_ms'] / theirs['step_ms']:.2f} of it{peak}")
    if theirs["parameters"] != (held := parameters_of(context, model)):
        yield Row(f"{model}: parameters", f"PyTorch {theirs['parameters']}, ours {held}", "FAIL")


def union_us(intervals: list[tuple[float, float]]) -> float:
    """The length of the union of intervals (begin, end)."""
    covered, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def events_of(trace: list[dict], categories: set[str]) -> list[dict]:
    """The events of a Chrome trace with a duration, a caller before what it calls."""
    events = [event for event in trace if event.get("ph") == "X" and event.get("cat") in categories]
    return sorted(events, key=lambda event: (event["ts"], -event["dur"]))


def outermost(events: list[dict]) -> Iterator[dict]:
    """Those that are not within another one of their thread, of events in the order of events_of()."""
    reached: dict[tuple, float] = {}
    for event in events:
        line = (event["pid"], event["tid"])
        if event["ts"] >= reached.get(line, float("-inf")):
            reached[line] = event["ts"] + event["dur"]
            yield event


def device_events(trace: list[dict], on_gpu: bool) -> list[dict]:
    """What a Chrome trace says of the device: kernels, copies and fills; on a CPU, operations."""
    wanted = {"kernel", "gpu_memcpy", "gpu_memset"} if on_gpu else {"cpu_op"}
    events = events_of(trace, wanted)
    if not events:
        raise RuntimeError(f"the trace has no events of {', '.join(sorted(wanted))}")
    return events


def kernels_of(events: list[dict]) -> tuple[float, float, list[tuple[str, float]]]:
    """Their span and busy time in us, and the kernels that take the most time. On a CPU, the outermost operations
    count as kernels."""
    intervals = [(event["ts"], event["ts"] + event["dur"]) for event in events]
    by_name: dict[str, float] = collections.defaultdict(float)
    for event in outermost(events):
        by_name[event["name"]] += event["dur"]
    span = max(end for _, end in intervals) - min(begin for begin, _ in intervals)
    return span, union_us(intervals), sorted(by_name.items(), key=lambda item: -item[1])


def trimmed(events: list[dict], kernels: list[tuple[str, float]]) -> dict:
    """A Chrome trace of only the largest kernels, without their arguments and with limits for its size."""
    largest = {name for name, _ in kernels[:TRACE_KERNELS]}
    kept = [event for event in events if event["name"] in largest][:TRACE_EVENTS]
    return {"traceEvents": [{"ph": "X", "cat": event["cat"], "name": event["name"][:TRACE_NAME], "ts": event["ts"],
                             "dur": event["dur"], "pid": event["pid"], "tid": event["tid"]} for event in kept]}


def wait_for_trace(context: Context, process: subprocess.Popen, trace: pathlib.Path) -> None:
    """Waits until the trace is written, then kills the run: saving a large model would take longer than everything before."""
    while process.poll() is None and context.left_s() > 10:
        try:
            json.loads(trace.read_text())
            break
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.2)
    code = process.poll()
    process.kill()
    process.wait()
    if not trace.exists():
        raise RuntimeError(f"no {trace.name}, exit code {code}; see profile.txt")


def write_host_times(trace: list[dict], out: pathlib.Path) -> None:
    """What the host's threads spend: by operation and CUDA call, its time without what it calls, and the number of calls."""
    own: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0])
    open_calls: dict[tuple, list] = collections.defaultdict(list)
    for event in events_of(trace, {"cpu_op", "cuda_runtime", "cuda_driver"}):
        callers = open_calls[event["pid"], event["tid"]]
        while callers and callers[-1][1] <= event["ts"]:
            callers.pop()
        if callers:
            own[callers[-1][0]][0] -= event["dur"]
        own[event["name"]][0] += event["dur"]
        own[event["name"]][1] += 1
        callers.append((event["name"], event["ts"] + event["dur"]))
    lines = sorted(own.items(), key=lambda item: -item[1][0])
    out.write_text("".join(f"{us:12.1f} us {calls:8.0f}  {name[:TRACE_NAME]}\n" for name, (us, calls) in lines))


def kernel_rows(context: Context, name: str, what: str, trace: pathlib.Path) -> list[Row]:
    """Where the time goes, and the trimmed trace for --out."""
    all_events = json.loads(trace.read_text())["traceEvents"]
    write_host_times(all_events, context.log / f"{name}-host.txt")
    events = device_events(all_events, context.on_gpu)
    span, busy, kernels = kernels_of(events)
    (context.state / f"trace-{name}.json").write_text(json.dumps(trimmed(events, kernels)))
    (context.log / f"{name}-kernels.txt").write_text("".join(f"{us:12.1f} us  {kernel}\n" for kernel, us in kernels))
    largest = "; ".join(f"{kernel[:60]} {100 * us / busy:.0f} %" for kernel, us in kernels[:4])
    return [Row(f"{what}, {PROFILED_STEPS} steps profiled", f"{span / 1000:.1f} ms, idle {100 * (1 - busy / span):.1f} %"),
            Row(f"{what}: largest kernels", largest)]


def run_settings(folder: pathlib.Path, name: str, steps: int, logged_steps: int) -> list[str]:
    return as_options([f"train.max_steps={steps}", f"train.profile_steps={PROFILED_STEPS}", f"train.log_every_steps={logged_steps}",
                       "schedule.warmup_steps=0", "checkpoint.every_epochs=0", "eval.every_epochs=0", "eval.max_samples=4",
                       "eval.recalibrate_batches=0", f"output.dir={folder}", f"name={name}"])


def profile(context: Context, model: str) -> list[Row]:
    """Profiles two steps of two half-sized workers in one process by kernel."""
    folder = context.fresh(f"profile-{model}")
    trace = folder / model / "profile-rank-0.json"
    process = context.start([context.binary, *config_of(context, model, "bsdp"), *settings_of(context, model),
                             *run_settings(folder, model, steps=1000, logged_steps=1),
                             *as_options(["subnetwork.workers=2", "subnetwork.coverage=1/2"]), "--nproc", 1],
                            log=context.log / "profile.txt")
    wait_for_trace(context, process, trace)
    return kernel_rows(context, model, f"{model} bsdp, two workers", trace)


def samples_per_s(run_dir: pathlib.Path) -> float:
    """The median over the logged intervals but the first, which warms up and is profiled."""
    return statistics.median(line["samples_per_s"] for line in lines_of(run_dir, "train")[1:])


def run_all_workers(context: Context, method: str, as_graph: bool = False) -> pathlib.Path:
    """Trains ResNet-18 with eight workers in one process. On noise: every step has new images, and no epoch ends."""
    batch = BATCH[context.device]
    folder = context.fresh(f"workers-{method}{'-graph' if as_graph else ''}")
    images = write_noise_images(context.scratch("images"), WORKERS * batch * RUN_STEPS + 1)
    context.sdp(*config_of(context, "resnet18", method), *settings_of(context, "resnet18"),
                *run_settings(folder, method, RUN_STEPS, LOGGED_STEPS),
                *as_options([f"train.batch_size_per_worker={batch}", f"data.path={images}",
                             f"train.cuda_graph={str(as_graph and context.on_gpu).lower()}"]), "--nproc", 1, log_name=method)
    return folder / method


def all_workers(context: Context, method: str, as_graph: bool = False) -> list[Row]:
    run_dir = run_all_workers(context, method, as_graph)
    graph = ", as a CUDA graph" if as_graph else ""
    what = f"resnet18 {method}, 8 workers of batch {BATCH[context.device]} on one device{graph}"
    return [Row(what, f"{samples_per_s(run_dir):.0f} samples/s"),
            *kernel_rows(context, f"resnet18-{method}{'-graph' if as_graph else ''}", what, run_dir / "profile-rank-0.json")]


def all_workers_against_pytorch(context: Context) -> list[Row]:
    """PyTorch trains one model on the samples of all eight workers, whose passes are a CUDA graph."""
    batch = WORKERS * BATCH[context.device]
    sizes = f"resnet18_w{model_of(SIZES['resnet18'][context.device]).width}_b{batch}"
    theirs = 1000 * batch / torch_step(context, sizes, "compiled")["step_ms"]
    ours = {}
    for method in ("ddp", "bsdp"):
        run_dir = context.scratch(f"workers-{method}-graph") / method
        ours[method] = samples_per_s(run_dir if lines_of(run_dir, "eval") else run_all_workers(context, method, as_graph=True))
    ratios = ", ".join(f"{method} {rate / theirs:.2f} of it" for method, rate in ours.items())
    return [Row(f"resnet18: PyTorch, compiled, channels_last, batch {batch}", f"{theirs:.0f} samples/s, ours {ratios}")]


def benchmark(context: Context, model: str) -> Iterator[Row]:
    """scripts/bench with a model in one process: the forms of PyTorch and this program, in turn."""
    folder = context.fresh(f"bench-{model}")
    command = [context.environment["PYTHON"], context.home / "scripts" / "bench", "--models", model, "--processes", 1,
               "--device", context.device, "--out", folder, *profile_option(context, "--profile")]
    context.wait(context.start(command, log=context.log / "bench.txt"))
    for run in json.loads((folder / "results.json").read_text())["cases"][0]["runs"]:
        value = run["error"] or (f"{run['ms']:.2f} ms, {run.get('to_fastest_peer', 0):.2f} of PyTorch's fastest; "
                                 f"{run['share_of_product_rate'] or 0:.2f} of the product rate")
        yield Row(f"{model}: {run['label']}", value, "FAIL" if run["error"] else "")
