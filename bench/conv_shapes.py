#!/usr/bin/env python3
"""Runs narrow convolutions forward and backward in child processes, and says which of them crash, hang or are wrong.

    bench/conv_shapes.py [--channels 1-17] [--kernels 1,3,7] [--strides 1,2] [--batches 1-4] [--sizes 8]
                         [--formats contiguous,channels_last] [--isas SSE41,AVX2,AVX512_CORE] [--threads 1]

Every shape is computed in fp32 by PyTorch, several times, under each of oneDNN's instruction sets that the CPU has, and
compared with fp64. glibc checks the heap: a kernel that writes beyond its buffer ends its child. Ends with 1 if a shape
fails that conv2d (lib/layers/conv.cpp) does not avoid. With these shapes it takes minutes per instruction set.
"""
import argparse
import collections
import dataclasses
import itertools
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
import typing

FLAGS = {"SSE41": {"sse4_1"}, "AVX2": {"avx2"}, "AVX512_CORE": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}
HEAP_CHECKER = "libc_malloc_debug.so.0"
TOLERANCE = 1e-4  # of the largest value; fp32 sums of up to 4 * 8 * 8 products
REPEATS = 3
SHAPES_PER_CPU_S = 20  # that many take a tenth of it
LIMIT_S = 60


@dataclasses.dataclass(frozen=True)
class Shape:
    inputs: int
    outputs: int
    kernel: int
    stride: int
    format: str
    batch: int
    size: int

    def kind(self) -> tuple[str, int, int, int]:
        return self.format, self.kernel, self.stride, self.size

    def is_avoided(self) -> bool:
        """As conv2d in lib/layers/conv.cpp decides."""
        return self.kernel == 1 and self.stride > 1 and self.inputs < 16


def numbers(text: str) -> list[int]:
    """Of '1-3,8': 1, 2, 3, 8."""
    ranges = [part.partition("-") for part in text.split(",")]
    return [n for first, _, last in ranges for n in range(int(first), int(last or first) + 1)]


def words(text: str) -> list[str]:
    return text.split(",")


def shapes(arguments: argparse.Namespace) -> list[list[Shape]]:
    """In groups of the same input channels, kernel, stride and format."""
    lists = (arguments.formats, arguments.kernels, arguments.strides, arguments.sizes, arguments.channels)
    return [[Shape(inputs, outputs, kernel, stride, format, batch, size)
             for outputs, batch in itertools.product(arguments.channels, arguments.batches)]
            for format, kernel, stride, size, inputs in itertools.product(*lists)]


def compute(shape: Shape) -> str:
    """Empty, or what is wrong."""
    import torch

    layout = torch.channels_last if shape.format == "channels_last" else torch.contiguous_format
    torch.manual_seed(0)
    x = torch.randn(shape.batch, shape.inputs, shape.size, shape.size)
    weight = torch.randn(shape.outputs, shape.inputs, shape.kernel, shape.kernel)
    stride = [shape.stride] * 2
    padding = [0 if shape.stride == shape.kernel else shape.kernel // 2] * 2  # 0: embeddings of patches

    def passes(x: torch.Tensor, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.conv2d(x, weight, stride=stride, padding=padding)
        gradient = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y).contiguous(memory_format=layout)
        of_input, of_weight, _ = torch.ops.aten.convolution_backward(
            gradient, x, weight, None, stride, padding, [1, 1], False, [0, 0], 1, [True, True, False])
        return {"output": y, "gradient of the input": of_input, "gradient of the weight": of_weight}

    expected = passes(x.double(), weight.double())
    for _ in range(REPEATS):
        found = passes(*(tensor.clone().contiguous(memory_format=layout) for tensor in (x, weight)))
        for name, value in expected.items():
            error = ((found[name] - value).abs().max() / value.abs().max()).item()
            if not error < TOLERANCE:
                return f"{name} wrong by {error:.0e}"
    return ""


def run_forked(group: list[Shape]) -> str:
    """Empty, or what happened to a child that computes these shapes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        limit = 1 + len(group) // SHAPES_PER_CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.write(write, next(filter(None, map(compute, group)), "").encode())
        os._exit(0)
    os.close(write)
    deadline = time.monotonic() + LIMIT_S
    status = None
    while status is None:
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(code)
        elif time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            status = -signal.SIGKILL
        else:
            time.sleep(0.001)
    with os.fdopen(read) as pipe:
        problem = pipe.read()
    if status in (-signal.SIGKILL, -signal.SIGXCPU):
        return "does not end"
    return problem or (signal.Signals(-status).name if status < 0 else f"exit {status}" if status else "")


def print_failures(group: list[Shape]) -> None:
    """Prints a line of JSON for every shape that fails, which it finds by halving the group."""
    if not (problem := run_forked(group)):
        return
    if len(group) == 1:
        print(json.dumps([dataclasses.asdict(group[0]), problem]), flush=True)
    else:
        print_failures(group[: len(group) // 2])
        print_failures(group[len(group) // 2 :])


def environment(isa: str) -> dict[str, str]:
    checks = {"LD_PRELOAD": HEAP_CHECKER, "GLIBC_TUNABLES": "glibc.malloc.check=3"}
    return os.environ | checks | {"ONEDNN_MAX_CPU_ISA": isa, "OMP_WAIT_POLICY": "passive"}


def cpu_flags() -> set[str]:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


def failures(isa: str) -> dict[Shape, str]:
    done = subprocess.run([sys.executable, *sys.argv, "--inside"], env=environment(isa), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{isa}: ended with {done.returncode}")
    return {Shape(**shape): problem for shape, problem in map(json.loads, done.stdout.splitlines())}


def ranges(values: typing.Iterable[int]) -> str:
    """Of 1, 2, 3, 8: '1-3,8'."""
    parts: list[list[int]] = []
    for value in sorted(set(values)):
        if parts and parts[-1][-1] == value - 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def print_summary(isa: str, failed: dict[Shape, str], count: int) -> None:
    print(f"{isa}: {len(failed)} of {count} shapes fail")
    kinds = collections.defaultdict(list)
    for shape in failed:
        kinds[shape.kind()].append(shape)
    for (format, kernel, stride, size), members in sorted(kinds.items()):
        problems = collections.Counter(failed[member].split(" by ")[0] for member in members)
        print(f"  {format} {kernel}x{kernel} stride {stride} size {size}: {len(members)} shapes,",
              f"input channels {ranges(member.inputs for member in members)},",
              f"output channels {ranges(member.outputs for member in members)},",
              f"batch {ranges(member.batch for member in members)}:",
              ", ".join(f"{problem} {n}" for problem, n in problems.most_common()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"channels": "1-17", "kernels": "1,3,7", "strides": "1,2", "batches": "1-4", "sizes": "8"}.items():
        parser.add_argument(f"--{name}", type=numbers, default=numbers(default))
    parser.add_argument("--formats", type=words, default=["contiguous", "channels_last"])
    parser.add_argument("--isas", type=words, default=list(FLAGS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        import torch

        torch.set_num_threads(arguments.threads)
        for group in shapes(arguments):
            print_failures(group)
        return 0
    count = sum(map(len, shapes(arguments)))
    failed: set[Shape] = set()
    for isa in arguments.isas:
        if FLAGS[isa] <= cpu_flags():
            of_isa = failures(isa)
            print_summary(isa, of_isa, count)
            failed.update(of_isa)
        else:
            print(f"{isa}: not run, this CPU lacks it")
    unexpected = [shape for shape in failed if not shape.is_avoided()]
    print(f"{len(unexpected)} shapes fail that conv2d does not avoid", *unexpected[:10], sep="\n")
    return 1 if unexpected else 0


if __name__ == "__main__":
    raise SystemExit(main())
