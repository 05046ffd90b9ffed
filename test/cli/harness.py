"""Runs sdp-train as its users do and reads the files that it writes, independently of its own code."""

import contextlib
import functools
import hashlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

BINARY = os.environ["SDP_TRAIN"]
# The device of the runs, cpu or cuda. All processes of a run share one GPU, which Gloo allows. Its kernels are set to be
# deterministic, so that results that are equal bit by bit on a CPU are so on the GPU.
DEVICE = os.environ.get("SDP_TEST_DEVICE", "cpu")
ON_DEVICE = {"cpu": {"device": "cpu"}, "cuda": {"device": "cuda", "backend": "gloo", "deterministic": True}}
assert DEVICE in ON_DEVICE, f"SDP_TEST_DEVICE: found '{DEVICE}', expected cpu or cuda"
NORMALIZATION = {"mean": [0.4914, 0.4822, 0.4465], "std": [0.2470, 0.2435, 0.2616]}  # of CIFAR-10
MEAN, STD = (np.array(values, dtype=np.float32).reshape(3, 1, 1) for values in NORMALIZATION.values())
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def write_arrays(file: Path, images: np.ndarray, labels: np.ndarray, class_names: list[str]) -> None:
    """Images [N, C, H, W] and labels as the program reads them: uint8, with the color of a pixel in one place."""
    file.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"images": np.ascontiguousarray(images.transpose(0, 2, 3, 1)), "labels": labels.astype(np.uint8)}
    save_file(arrays, file, {"class_names": json.dumps(class_names)})


def read_arrays(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, C, H, W] and labels."""
    arrays = load_file(file)
    return np.ascontiguousarray(arrays["images"].transpose(0, 3, 1, 2)), arrays["labels"]


def write_cifar10(folder: Path, per_part: int = 40) -> Path:
    """A small data set like CIFAR-10, of five parts to train on and one more: noise around a color of each class."""
    rng = np.random.default_rng(7)
    colors = rng.integers(60, 196, size=(10, 3, 1, 1))
    parts = []
    for _ in range(6):
        labels = rng.integers(0, 10, size=per_part)
        pixels = np.clip(colors[labels] + rng.normal(0, 40, size=(per_part, 3, 32, 32)), 0, 255).astype(np.uint8)
        parts.append((pixels, labels))
    for name, chosen in (("train", parts[:5]), ("val", parts[5:])):
        images, labels = (np.concatenate(arrays) for arrays in zip(*chosen))
        write_arrays(folder / f"{name}.safetensors", images, labels, CIFAR10)
    return folder


def read_cifar10(folder: Path, split: str):
    """Images (float32, normalized as (x / 255 - mean) / std in float32) and labels in the order of the file."""
    images, labels = read_arrays(folder / {"train": "train.safetensors", "test": "val.safetensors"}[split])
    images = images.astype(np.float32) / np.float32(255)
    return torch.from_numpy((images - MEAN) / STD), torch.from_numpy(labels.astype(np.int64))


RANK_VARIABLE = re.compile(
    r"(LOCAL_|GROUP_|NODE_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|SDP_RENDEZVOUS_FILE"
    r"|(OMPI|PMI|PMIX|MPI|MV2|SLURM|TORCHELASTIC)_.*"
)


def environment(env=None) -> dict:
    """This process's environment without the variables of a launcher, updated with `env`."""
    return {**{k: v for k, v in os.environ.items() if not RANK_VARIABLE.fullmatch(k)}, **(env or {})}


def start(*arguments, env=None, **options) -> subprocess.Popen:
    """Starts the program. `options` are passed to Popen."""
    return subprocess.Popen([BINARY, *map(str, arguments)], env=environment(env), **options)


class Prestarted:
    """The program, loaded once (prestarted.c): a command takes a hundredth of a second to start instead of one."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        source = Path(__file__).with_name("prestarted.c").read_text()
        env = environment({"LD_PRELOAD": shared_object(Path(self.folder.name), "prestarted", source)})
        self.process = subprocess.Popen([BINARY], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, arguments, timeout):
        files = [Path(self.folder.name) / name for name in ("stdout", "stderr")]
        words = b"".join(os.fsencode(word) + b"\0" for word in (*files, *arguments))
        self.process.stdin.write(b"%d\n" % len(arguments) + words)
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            self.process.kill()  # and with it the command's processes
            raise subprocess.TimeoutExpired([BINARY, *arguments], timeout)
        code = os.waitstatus_to_exitcode(int(self.process.stdout.readline()))
        return subprocess.CompletedProcess([BINARY, *arguments], code, *(file.read_text() for file in files))


prestarted = functools.cache(Prestarted)


def run(*arguments, expect: int = 0, env=None, timeout: int = 300) -> subprocess.CompletedProcess:
    """Runs the program; its exit code must be `expect`. With variables of its own and on a GPU it is started anew."""
    arguments = [str(argument) for argument in arguments]
    if env is None and DEVICE == "cpu":
        result = prestarted().run(arguments, timeout)
    else:
        result = subprocess.run([BINARY, *arguments], env=environment(env), capture_output=True, text=True, timeout=timeout)
    assert result.returncode == expect, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def run_json(*arguments, **options):
    """What the program prints as JSON."""
    return json.loads(run(*arguments, "--json", **options).stdout)


def sets(*assignments) -> list[str]:
    """The options that set keys."""
    return [word for assignment in assignments for word in ("--set", assignment)]


def start_run(config, *more, **options) -> subprocess.Popen:
    """Starts the program with one pipe for all that it says."""
    return start("--config", config, *more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def by_hand(config, *ranks, world=2, per_node=2, port=None, env=None, more=lambda rank: []) -> list[subprocess.Popen]:
    """Ranks with the variables that torchrun sets."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port or free_port()), "WORLD_SIZE": str(world),
             "LOCAL_WORLD_SIZE": str(per_node)}
    local = lambda rank: {"RANK": str(rank), "LOCAL_RANK": str(rank % per_node)}
    return [start_run(config, *more(rank), env=place | local(rank) | (env or {})) for rank in ranks]


@contextlib.contextmanager
def ending(*processes):
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def shared_object(folder: Path, name: str, source: str, *options) -> str:
    """Compiled, to be loaded into the program (LD_PRELOAD)."""
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", folder / f"{name}.so", folder / f"{name}.c"], check=True)
    return os.fspath(folder / f"{name}.so")


def children_of(pid) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_running(pid) -> bool:
    """A zombie does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_run(process: subprocess.Popen) -> None:
    """Kills a launcher that has a session of its own. Its processes end with it, and have ended when this returns."""
    ranks = children_of(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    await_(lambda: not any(map(is_running, ranks)), "the end of the processes of a killed launcher")


def await_(condition, what, process=None, limit_s=300):
    """Waits until the condition is true, while the process runs; returns its value."""
    deadline = time.monotonic() + limit_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"no {what} within {limit_s} s"
        assert process is None or process.poll() is None, f"no {what}: {process.communicate()[0]}"
        time.sleep(0.001)
    return result


def await_checkpoint(run_dir, step, process):
    await_(lambda: (saved_step(run_dir) or 0) >= step, f"checkpoint of step {step}", process)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_config(folder: Path, name: str, data_dir: Path, **sections) -> Path:
    """A spec as JSON, which is YAML. The given sections are merged into those of a small, fast experiment."""
    spec = {
        "name": name,
        "seed": 3,
        "model": {"name": "resnet18", "width": 4},
        "data": {"name": "cifar10", "path": str(data_dir), "augment": []},
        "subnetwork": {"workers": 4, "coverage": "2/4"},
        "optimizer": {"lr": 0.05, "weight_decay": 5e-4},
        "schedule": {"name": "constant"},
        "train": {"max_steps": 20, "batch_size_per_worker": 4, "precision": "fp64"} | ON_DEVICE[DEVICE],
        "checkpoint": {"at_start": True, "keep_last": 2, "every_epochs": 0},
        "eval": {"every_epochs": 0, "recalibrate_batches": 2, "branch_scale": "none"},
        "output": {"dir": str(folder / "runs"), "trace": True},
    }
    for section, values in sections.items():
        if isinstance(values, dict):
            spec.setdefault(section, {}).update(values)
        else:
            spec[section] = values
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(spec))
    return path


def train(folder: Path, name: str, data_dir: Path, processes: int, **sections) -> Path:
    """The run's folder."""
    run("--config", write_config(folder, name, data_dir, **sections), "--nproc", processes)
    return folder / "runs" / name


def json_lines(path: Path) -> list:
    return [json.loads(line) for line in path.read_text().splitlines()]


def saved_step(run_dir: Path):
    """Of the newest checkpoint."""
    latest = run_dir / "latest"
    return int(latest.read_text().strip().removeprefix("step-")) if latest.exists() else None


def records(run_dir: Path, kind: str) -> list[dict]:
    """The run's metrics of a kind; none before there is a file."""
    path = run_dir / "metrics.jsonl"
    return [line for line in json_lines(path) if line["kind"] == kind] if path.exists() else []


def last_eval(run_dir: Path) -> dict:
    return records(run_dir, "eval")[-1]


def plan_of(folder: Path) -> dict:
    """Of a run or a checkpoint."""
    return json.loads((folder / "plan.json").read_text())


def without_times(record: dict) -> dict:
    return {key: value for key, value in record.items() if not key.endswith("_s")}


def traced(run_dir: Path, key: str) -> dict:
    """(step, worker, replica) -> value"""
    return {(t["step"], t["worker"], t["replica"]): t[key] for t in json_lines(run_dir / "trace.jsonl")}


trace_losses = functools.partial(traced, key="loss")
trace_samples = functools.partial(traced, key="samples")


def samples_by_step(run_dir: Path) -> list[list[int]]:
    """The samples of all workers in every step."""
    steps = {}
    for (step, *_), samples in trace_samples(run_dir).items():
        steps.setdefault(step, []).extend(samples)
    return [sorted(steps[step]) for step in sorted(steps)]


def checkpoint_tensors(run_dir: Path, step: int):
    """(kind, name, (hidden begin, end), (first, second number of the last part), values) of all files."""
    pair = lambda text: tuple(int(number) for number in text.split(":"))
    for file in sorted((run_dir / "checkpoints" / f"step-{step:08d}").glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for key in tensors.keys():
                kind, name, hidden, rest = key.split("|")
                yield kind, name, pair(hidden), pair(rest), tensors.get_tensor(key)


def checkpoint_pieces(run_dir: Path, step: int, wanted="value") -> dict:
    """(parameter, hidden range) -> flat master values, or state of another kind, assembled from the ranges that the processes saved."""
    pieces = {}
    for kind, parameter, hidden, (begin, _), values in checkpoint_tensors(run_dir, step):
        if kind == wanted:
            pieces.setdefault((parameter, hidden), {})[begin] = values
    for key, ranges in pieces.items():
        begins = sorted(ranges)
        ends = [0, *(begin + len(ranges[begin]) for begin in begins)]
        assert begins == ends[:-1], f"{key}: gap or overlap"
        pieces[key] = torch.cat([ranges[begin] for begin in begins])
    return pieces


def checkpoint_values(run_dir: Path, step: int, model, kind="value") -> dict:
    """Flat values of every parameter, or their state of another kind, with the model's shapes in row-major order. Parameters
    divided into slices are assembled with the model's slice_of."""
    of_name, values = {}, {}
    for (name, hidden), part in checkpoint_pieces(run_dir, step, kind).items():
        of_name.setdefault(name, {})[hidden] = part
    shapes = {name: p.shape for name, p in model.named_parameters()}
    for name, parts in of_name.items():
        whole = torch.empty(shapes[name], dtype=next(iter(parts.values())).dtype)
        order = [0, 2, 3, 1] if whole.dim() == 4 else list(range(whole.dim()))  # weights of convolutions: channels_last
        views = {hidden: whole.permute(order) for hidden in parts}
        if len(parts) > 1:
            dim, blocks = model.slice_of(name)
            dim = order.index(dim)
            sliced = whole.permute(order).unflatten(dim, (blocks, -1))
            each = sliced.shape[dim + 1] // max(end for _, end in parts)
            views = {(begin, end): sliced.narrow(dim + 1, begin * each, (end - begin) * each) for begin, end in parts}
        for hidden, part in parts.items():
            views[hidden].copy_(part.view(views[hidden].shape))
        values[name] = whole.flatten()
    return values


def checkpoint_buffer_pieces(run_dir: Path, step: int) -> dict:
    """(buffer, hidden range, worker, replica) -> values"""
    buffers = {}
    for kind, *key, values in checkpoint_tensors(run_dir, step):
        if kind == "buffer":
            name, hidden, place = key
            assert (name, hidden, *place) not in buffers, f"{name} is saved twice"
            buffers[name, hidden, *place] = values
    return buffers


def load_values(model: torch.nn.Module, values: dict) -> None:
    parameters = dict(model.named_parameters())
    assert parameters.keys() == values.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name].view(parameter.shape))


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hashes(run_dir: Path, step: int | None = None) -> dict[str, str]:
    """Of the files of a checkpoint, by default the newest: weights, optimizer state and BatchNorm statistics."""
    folder = run_dir / "checkpoints" / f"step-{saved_step(run_dir) if step is None else step:08d}"
    return {file.name: sha256(file) for file in folder.glob("*.safetensors")}
