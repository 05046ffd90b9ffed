#!/usr/bin/env python3
"""Counts the instructions that a step costs the host, of sdp-train and of PyTorch, for networks so small that little is computed.

    bench/host.py [--models NAME...] [--workers N...] [--binary FILE...] [--out FILE]

Both train the same network on one thread, PyTorch eager with the fused optimizer; with n workers in the process at coverage 1,
sdp-train makes n passes a step, and PyTorch accumulates over n batches. callgrind counts instructions, calls of ATen's operators
and tensors, which do not depend on what else the machine does. A step's are the difference of a run of many and one of few steps.
Instructions of operators, ATen's and lib/ops', that no other operator calls are "in operators"; the rest is what Python, bindings,
autograd's engine and nodes, modules, hooks and copies of pointers cost. Several binaries: a row for each.
"""

import argparse
import collections
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import runs

from benchmark.models import Model, model_of  # isort: skip

FEW_STEPS, MORE_PASSES = 3, 24  # Python collects garbage in some passes only
MODELS = ("resnet18_w8_b1", "llama_host")
OPERATOR = re.compile(r"(?:at::_ops::(?P<aten>\w+)::call|sdp::ops::(?P<own>\w+))\(")
# Callers within libtorch_cpu.so that are not themselves part of an operator. Templates begin with their return type.
ENGINE = re.compile(r"(?:[\w:]+ )?torch::autograd::(?!VariableType|\(anonymous|ADInplaceOrView)")
# Other constructors call the second of these.
TENSOR = re.compile(r"c10::TensorImpl::TensorImpl\((c10::TensorImpl::ImplType|c10::Storage&&.*std::optional<c10::Device>\))")


@dataclasses.dataclass
class Counts:
    """Of a run, or of a step."""

    instructions: int = 0
    in_operators: int = 0
    operators: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    nested: int = 0  # operators that these call
    tensors: int = 0
    by_function: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def per_step(self, fewer: "Counts", more_steps: int) -> "Counts":
        def share(many: int, few: int) -> int:
            return round((many - few) / more_steps)

        def shares(many: collections.Counter[str], few: collections.Counter[str]) -> collections.Counter[str]:
            return collections.Counter({name: share(count, few[name]) for name, count in many.items()})

        return Counts(share(self.instructions, fewer.instructions), share(self.in_operators, fewer.in_operators),
                      shares(self.operators, fewer.operators), share(self.nested, fewer.nested),
                      share(self.tensors, fewer.tensors),
                      shares(self.by_function, fewer.by_function))


def calls(profile: pathlib.Path) -> Iterator[tuple[str, str, str, int, int]]:
    """Object, caller, callee, calls and instructions in them, of callgrind's file; own instructions have no callee."""
    names: dict[str, dict[str, str]] = {"ob": {}, "fn": {}}

    def name(kind: str, text: str) -> str:
        number, _, new = text.partition(" ")
        return names[kind].setdefault(number, new)

    library = caller = callee = ""
    count = 0
    for line in profile.open(errors="replace"):
        kind, is_named, text = line.rstrip("\n").partition("=")
        if kind == "ob":
            library = name("ob", text)
        elif kind == "cob":
            name("ob", text)
        elif kind == "fn":
            caller = name("fn", text)
        elif kind == "cfn":
            callee = name("fn", text)
        elif kind == "calls":
            count = int(text.split()[0])
        elif line[0] in "+-*0123456789" and not is_named:
            yield library, caller, callee, count, int(line.split()[1])
            callee, count = "", 0


def counts_of(profile: pathlib.Path) -> Counts:
    counts = Counts()
    for library, caller, callee, count, instructions in calls(profile):
        if not callee:
            counts.instructions += instructions
            counts.by_function[caller] += instructions
        elif operator := OPERATOR.match(callee):
            is_within_another = not ENGINE.match(caller) if "libtorch_cpu" in library else caller.startswith("sdp::ops::")
            if not is_within_another:
                counts.in_operators += instructions
                counts.operators[operator["aten"] or operator["own"]] += count
            else:
                counts.nested += count
        elif TENSOR.match(callee):
            counts.tensors += count
    return counts


def count(command: list[object], folder: pathlib.Path) -> Counts:
    profile = folder / "callgrind.out"
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", "--error-limit=no", "-q"]
    environment = runs.environment(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([*valgrind, *map(str, command)], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return counts_of(profile)


def in_a_step(run: Callable[[int], Counts], workers: int) -> Counts:
    """`run` counts a run of so many steps, each with a pass per worker."""
    more_steps = max(1, MORE_PASSES // workers)
    return run(FEW_STEPS + more_steps).per_step(run(FEW_STEPS), more_steps)


def of_sdp(binary: pathlib.Path, model: Model, workers: int, folder: pathlib.Path) -> Counts:
    def run(steps: int) -> Counts:
        shutil.rmtree(folder / "runs", ignore_errors=True)
        spec = runs.write_spec(folder, "run", model.spec(), {
            "data": {"path": str(folder / "data")}, "subnetwork": {"workers": workers, "coverage": 1},
            "train": {"max_steps": steps, "log_every_steps": 100, "device": "cpu"}, "eval": {"max_samples": 1},
        })  # fmt: skip
        return count([binary, "--config", spec, "--nproc", 1], folder)

    return in_a_step(run, workers)


def of_torch(model: str, workers: int, folder: pathlib.Path) -> Counts:
    return in_a_step(lambda steps: count([sys.executable, __file__, "--train", model, workers, steps], folder), workers)


def train_in_torch(model: Model, workers: int, steps: int) -> None:
    import torch
    from benchmark.networks import network, optimizer_of
    from torch.nn import functional as F

    torch.set_num_threads(1)
    module = network(model).to(memory_format=torch.channels_last)
    optimizer = optimizer_of(model, module.parameters(), fused=True)
    if model.is_text:
        tokens = torch.randint(model.vocabulary, (model.batch, model.length + 1))
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    else:
        inputs = torch.randn(model.batch, 3, 32, 32).to(memory_format=torch.channels_last)
        targets = torch.randint(10, (model.batch,))
    for _ in range(steps):
        for _ in range(workers):
            loss = F.cross_entropy(module(inputs).flatten(0, -2), targets)
            (loss / workers if workers > 1 else loss).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def rows(label: str, model: str, workers: int, counts: Counts, torch: Counts) -> list[str]:
    outside = counts.instructions - counts.in_operators
    return [model, str(workers), label, f"{counts.instructions / 1e6:.2f}", f"{counts.in_operators / 1e6:.2f}",
            f"{outside / 1e6:.2f}", f"{outside / (torch.instructions - torch.in_operators):.2f}",
            str(counts.operators.total()), str(counts.nested), str(counts.tensors)]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--binary", nargs="+", type=pathlib.Path, default=[runs.BINARY])
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="also print the N functions of most instructions")
    parser.add_argument("--out", type=pathlib.Path, help="also write the table to this file")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        model, workers, steps = arguments.train
        return train_in_torch(model_of(model), int(workers), int(steps))
    table = []
    for name in arguments.models:
        model = model_of(name)
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            if model.is_text:
                runs.write_tokens(folder / "data", model.vocabulary)
            else:
                runs.write_cifar10(folder / "data")
            for workers in arguments.workers:
                torch = of_torch(name, workers, folder)
                sides = [("PyTorch", torch)]
                sides += [(str(binary), of_sdp(binary, model, workers, folder)) for binary in arguments.binary]
                for label, counts in sides:
                    table.append(rows(label, name, workers, counts, torch))
                    print(label, counts.operators.most_common(), file=sys.stderr)
                    for function, instructions in counts.by_function.most_common(arguments.functions):
                        print(f"{instructions:12,} {function}", file=sys.stderr)
    header = ["model", "workers", "program", "instructions (millions)", "in operators", "outside", "outside / PyTorch's",
              "operators", "called by these", "tensors"]  # fmt: skip
    runs.print_table(header, table, arguments.out)


if __name__ == "__main__":
    main()
