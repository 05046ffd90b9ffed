"""The jobs in the order in which calls run them. The first 520 s answer the most important questions about exactness and speed;
then follows what the method reaches at the paper's width."""

from collections.abc import Callable, Iterable

from benchmark.models import DEFAULT_MODELS
from gpuhour import doctor, faults, learning, parity, steps, suite
from gpuhour.jobs import GRACE_S, Context, Job, Row

FIRST_TESTS = "ops", "layers", "memory", "model"
COMPARED_MODELS = "resnet", "swin", "vit", "gpt2", "llama"
SLOW_TESTS = "engine", "train", "cli_equivalence", *(f"model_{model}_parity" for model in COMPARED_MODELS)


def jobs_of(context: Context, epochs: int | None) -> list[Job]:
    backend, *others = ("nccl", "gloo") if context.on_gpu else ("gloo",)
    slower = 3 if context.on_gpu else 30  # than estimated: a job that takes longer is ended

    def job(stage: str, name: str, estimate_s: float, work: Callable[..., Iterable[Row]], *arguments, **more) -> Job:
        return Job(stage, name, estimate_s, slower * estimate_s + GRACE_S, lambda context: work(context, *arguments), **more)

    def parities(label: str, backend: str, regimes: tuple[str, ...], estimate_s: float) -> list[Job]:
        return [job("parity", f"{model} {label}", estimate_s, parity.compare, model, backend, regimes) for model in parity.MODELS]

    def measured(model: str, *methods: str) -> list[Job]:
        estimate_s = 22 if model == "llama_1b" else 14
        return [job("steps", f"{model} {method}", estimate_s, steps.measure, model, method) for method in methods]

    def profile_and_pytorch(model: str) -> list[Job]:
        return [job("steps", f"{model} profile", 26, steps.profile, model),
                job("steps", f"{model} pytorch eager", 20, steps.against_pytorch, model, "eager"),
                job("steps", f"{model} pytorch compiled", 40, steps.against_pytorch, model, "compiled")]

    def main_faults(backend: str) -> list[Job]:
        return [job("faults", f"kill by {backend}", 25, faults.killed, backend),
                job("faults", f"hang by {backend}", 35, faults.hanging, backend),
                job("faults", f"resume by {backend}", 50, faults.resumed, backend)]

    first = [
        job("doctor", "all checks", 40, doctor.examine),
        *parities(f"regimes by {backend}", backend, parity.FOUR, 20),
        *(job("parity", f"{model} as a graph", 10, parity.graphed, model) for model in ("resnet", "llama")),
        *measured("llama_1b", "ddp", "bsdp"),
        *profile_and_pytorch("llama_1b"),
        job("steps", "resnet18 8 workers ddp", 15, steps.all_workers, "ddp"),
        job("steps", "resnet18 8 workers bsdp", 15, steps.all_workers, "bsdp"),
        job("steps", "resnet18 8 workers ddp graph", 15, steps.all_workers, "ddp", True),
        job("steps", "resnet18 8 workers bsdp graph", 15, steps.all_workers, "bsdp", True),
        job("steps", "resnet18 8 workers pytorch", 40, steps.all_workers_against_pytorch),
        *main_faults(backend),
        *(job("suite", name, 15, suite.run_test, name) for name in FIRST_TESTS),
    ]
    rest = [*parities(f"ddp by {backend}", backend, parity.DDP, 10), *parities("bf16", "", tuple(parity.REGIMES), 15),
            *measured("llama_1b", *steps.METHODS[2:])]
    for model in list(steps.MODELS)[1:]:
        rest += [*measured(model, *steps.METHODS), *profile_and_pytorch(model)]
    rest += [job("steps", f"bench {model}", 240, steps.benchmark, model) for model in DEFAULT_MODELS[context.device]]
    rest.append(job("faults", "evaluation", 15, faults.streamed, backend))
    for other in others:
        rest += [*parities(f"regimes by {other}", other, parity.FOUR, 20), *main_faults(other)]
    rest += [job("faults", f"out of memory by {name}", 30, faults.out_of_memory, name) for name in (backend, *others)]
    rest += [job("suite", name, 90 if name in SLOW_TESTS else 20, suite.run_test, name)
             for name in suite.tests_of(context) if name not in FIRST_TESTS]
    learned = [job("learning", label, 150, learning.train, label, epochs, takes_what_is_left=True)
               for label in learning.packed_points(context.home)]
    return first + learned + rest
