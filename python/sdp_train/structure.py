"""What the program asks of a network in Python (lib/python): its structure, and copies whose tensors the program binds."""

import copy
import functools
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from sdp_train.network import AnyNetwork, Divided, Network, NetworkError, Pass

STATISTICS = ("running_mean", "running_var")


class NoInitialValues(TorchFunctionMode):
    """Finds values that a network sets outside of its modules' `reset_parameters`, which would be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.found = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        changes = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
        if changes and args and isinstance(args[0], nn.Parameter):
            frame = sys._getframe()
            while frame and not frame.f_code.co_name.endswith("reset_parameters"):
                frame = frame.f_back
            self.found = self.found or ("" if frame else name)
            return args[0]  # there are no values
        return func(*args, **(kwargs or {}))


@contextmanager
def parameters_without_memory() -> Iterator[None]:
    """Modules that are made meanwhile have their parameters on the meta device, and their buffers where they are."""
    register = nn.Module.register_parameter

    def register_without_memory(module: nn.Module, name: str, value: nn.Parameter | None) -> None:
        register(module, name, value)
        if value is not None and not value.is_meta:
            module._parameters[name] = on_meta(value)

    known: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # keeps the originals, so that no address is used twice

    def on_meta(value: nn.Parameter) -> nn.Parameter:
        if id(value) not in known:
            known[id(value)] = (value, nn.Parameter(torch.empty_like(value, device="meta"), value.requires_grad))
        return known[id(value)][1]

    nn.Module.register_parameter = register_without_memory
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*copying from a non-meta parameter.*")  # whole_init reads them again
            yield
    finally:
        nn.Module.register_parameter = register


class DescribingPass(Pass):
    """Notes what passes through the branches."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.section = -1  # of the branch that was called last
        self.stream: dict[int, tuple[Tensor, Tensor]] = {}

    def branch(self, i: int, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        if i in self.stream or i < self.section:
            raise NetworkError(
                f"branch {self.names[i]} is called twice or after a later one. Expected one call of each, in order"
            )
        self.section = i
        out = f(x)
        if not isinstance(out, Tensor):
            raise NetworkError(f"branch {self.names[i]} returns {type(out).__name__}, expected one tensor")
        self.stream[i] = (x, out)
        return out


class Structure:
    """What the program asks of a network that `build` makes."""

    def __init__(self, build: Callable[[], AnyNetwork]) -> None:
        self.build = build
        with parameters_without_memory(), NoInitialValues() as values:
            self.template = build()
        if not isinstance(self.template, Network | Divided):
            raise NetworkError(
                f"{build} makes {type(self.template).__name__}, expected a sdp_train.Network, or sdp_train.divide(...)"
            )
        root = self.template.root
        self.has_batch_norm = any(isinstance(m, _BatchNorm) and m.track_running_stats for m in root.modules())
        self.branches_per_block = self.template.branches_per_block
        self.slots: dict[str, list[tuple[str, str]]] = {}  # by parameter: the modules that have it, and its names there
        names: dict[Tensor, str] = {}
        for name, parameter in root.named_parameters(remove_duplicate=False):
            if not parameter.requires_grad:
                raise NetworkError(f"{name} requires no gradient. Expected that it does; optimizer.groups can freeze it")
            module, _, own = name.rpartition(".")
            self.slots.setdefault(names.setdefault(parameter, name), []).append((module, own))
        self._names = names
        if not self.template.whole_init:
            self._check_initial_values(values.found)
        self._whole_values: tuple[int, dict[str, Tensor]] | None = None

    def _check_initial_values(self, found: str) -> None:
        advice = "set whole_init = True in the class, and every process builds the whole network once in its host's memory"
        if found:
            raise NetworkError(f"{type(self.template).__name__} sets initial values itself, with {found}; {advice}")
        for name, slots in self.slots.items():
            if not hasattr(self.template.root.get_submodule(slots[0][0]), "reset_parameters"):
                raise NetworkError(f"{name}: its module has no reset_parameters to initialize it. Define one; or {advice}")

    def draw(self, name: str, seed: int) -> Tensor:
        """The initial values of a parameter, fp32 on the CPU. They depend on the seed and the name alone."""
        if not self.template.whole_init:
            module, own = self.slots[name][0]
            layer = copy.deepcopy(self.template.root.get_submodule(module))
            for child in list(layer._modules):
                del layer._modules[child]
            with seeded(seed, module):
                layer.to_empty(device="cpu").reset_parameters()
            return getattr(layer, own).detach().float()
        if not self._whole_values or self._whole_values[0] != seed:
            with seeded(seed, ""):
                values = dict(self.build().root.named_parameters())
            self._whole_values = (seed, {name: value.detach().float() for name, value in values.items()})
        return self._whole_values[1][name]

    def instance(self) -> "Instance":
        self._whole_values = None
        return Instance(self)

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def describe(self, input_shape: tuple[int, ...]) -> dict[str, Any]:
        """Branches, parameters and buffers in the order in which they are used. The input has 2 samples: [2, C, S, S] images or
        [2, T] tokens."""
        if isinstance(self.template, Divided):
            self._leave_out_changed_shapes(input_shape)
        root, branches = self.template.root, list(self.template.branches())
        modules = {module: name for name, module in root.named_modules()}
        for i, branch in enumerate(branches):
            if not isinstance(branch, nn.Module) or branch not in modules:
                raise NetworkError(
                    f"branch {i} is not a module of {type(root).__name__}. Expected one, assigned to an attribute"
                )
        names = [modules[branch] for branch in branches]
        self._check_parameters(names)
        instance = Instance(self)
        around = DescribingPass(names)
        section_of: dict[str, int] = {}

        def note(prefix: str, *_: Any) -> None:
            for name, slots in self.slots.items():
                if any(module == prefix for module, _ in slots):
                    section_of.setdefault(name, around.section)

        for name, module in instance.network.root.named_modules():
            if module._parameters:
                module.register_forward_pre_hook(functools.partial(note, name))
        before, output = trace(instance, around, input_shape)
        for name, buffer in instance.named_constants():
            if buffer is not before[name][0] or buffer._version != before[name][1]:
                raise NetworkError(
                    f"the forward pass changes the buffer {name}. Expected constant buffers, and statistics of BatchNorm: what "
                    "every worker changes by itself has no common value"
                )
        for i, name in enumerate(names):
            if i not in around.stream:
                raise NetworkError(f"the forward pass does not reach branch {name}")
        scaled = [set(map(id, self.template.scaled_parameters(i))) for i in range(len(branches))]
        is_scaled = all(scaled)
        parameters = []
        for parameter, name in self._names.items():
            branch = self._branch_of(name, names)
            # What no module reads in its own forward pass may be read first.
            place = (section_of.get(name, -1), 1) if branch is None else (branch, 0)
            scales = is_scaled and branch is not None and id(parameter) in scaled[branch]
            parameters.append((place, name, list(parameter.shape), self.role(name), branch, scales))
        parameters.sort(key=lambda p: p[0])
        head = self.template.linear_head()
        return {
            "branches": [(names[i], x.numel() // 2, out.numel() // 2) for i, (x, out) in sorted(around.stream.items())],
            "parameters": [p[1:] for p in parameters],
            "buffers": [(n, list(b.shape), float(n.endswith("var")), self._branch_of(n, names)) for n, b in statistics(root)],
            "head": [self._names[p] for p in (head.weight, head.bias) if p is not None] if head else [],
            "outputs": head.out_features if head else output.shape[-1],
        }

    def _check_parameters(self, branches: list[str]) -> None:
        for name, slots in self.slots.items():
            users = {self._branch_of(f"{module}.{own}", branches) for module, own in slots}
            if len(users) > 1:
                branch = max(user for user in users if user is not None)
                raise NetworkError(
                    f"the parameter {name} of branch {branches[branch]} is also used elsewhere. Expected parameters of one "
                    "branch: a worker that lacks the branch lacks its parameters"
                )

    @staticmethod
    def _branch_of(name: str, branches: list[str]) -> int | None:
        """Of a parameter or buffer."""
        return next((i for i, branch in enumerate(branches) if name.startswith(branch + ".")), None)

    def role(self, name: str) -> str:
        """norm, bias or weight, as ParameterRole."""
        module, own = self.slots[name][0]
        layer = self.template.root.get_submodule(module)
        if "norm" in type(layer).__name__.lower():
            return "norm"
        return "bias" if layer._parameters[own].dim() < 2 else "weight"

    def _leave_out_changed_shapes(self, input_shape: tuple[int, ...]) -> None:
        around = DescribingPass(self.template.names)
        trace(Instance(self), around, input_shape)
        changed = {self.template.names[i] for i, (x, out) in around.stream.items() if x.shape != out.shape}
        self.template.names = [name for name in self.template.names if name not in changed]
        if not self.template.names:
            raise NetworkError("every block changes the shape of its input: none can be absent")


@contextmanager
def seeded(seed: int, name: str) -> Iterator[None]:
    """Random numbers that depend on the seed and the name alone."""
    with torch.random.fork_rng(devices=[]):
        digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=7).digest()
        torch.manual_seed(int.from_bytes(digest, "little"))
        yield


def statistics(root: nn.Module) -> list[tuple[str, Tensor]]:
    return [
        (f"{name}.{own}", getattr(module, own))
        for name, module in root.named_modules()
        if isinstance(module, _BatchNorm) and module.track_running_stats
        for own in STATISTICS
    ]


def trace(instance: "Instance", around: DescribingPass, shape: tuple[int, ...]) -> tuple[dict[str, tuple[Tensor, int]], Tensor]:
    """Runs the network on the meta device. Returns its constants before, with their versions, and the output."""
    x = torch.empty(shape, device="meta", dtype=torch.int64 if len(shape) == 2 else torch.float32)
    instance.bind({}, {name: buffer.to("meta") for name, buffer in statistics(instance.network.root)})
    before = instance.constants("meta")
    try:
        return before, instance.run(x, around, True, True, 0.1)
    except (NotImplementedError, RuntimeError) as error:
        if not any(word in str(error) for word in ("Meta", "fake impl")):
            raise
        raise NetworkError(
            f"{error}\nPlans run the network on tensors without memory. Expected operators that have a meta kernel"
        ) from error


class Instance:
    """One copy of the network, whose tensors the program binds."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.network = copy.deepcopy(structure.template)
        root = self.network.root
        self.batch_norms = [m for m in root.modules() if isinstance(m, _BatchNorm)]
        for module in self.batch_norms:
            if module.track_running_stats and module.momentum is None:
                raise NetworkError("a BatchNorm has momentum None. Expected a number")
            module._buffers["num_batches_tracked"] = None
        self.momenta = [module.momentum for module in self.batch_norms]
        self.mode: tuple[bool, bool, float] | None = None
        self.is_placed = False
        for module in root.modules():
            if "norm" in type(module).__name__.lower() and not isinstance(module, _BatchNorm) and module._parameters:
                module.forward = functools.partial(in_parameters_type, module, module.forward)

    def bind(self, tensors: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
        """Uses these tensors: leaves of autograd, which the program owns. What is outside of the branches comes first."""
        root = self.network.root
        if tensors and not self.is_placed:
            self.is_placed = True
            example = max(tensors.items(), key=lambda item: self.structure.role(item[0]) != "norm")[1]
            self.constants(example.device, example.dtype)
        for name, tensor in tensors.items():
            tensor._is_param = True  # isinstance(tensor, torch.nn.Parameter)
            for module, own in self.structure.slots[name]:
                root.get_submodule(module)._parameters[own] = tensor
        for name, tensor in buffers.items():
            module, _, own = name.rpartition(".")
            root.get_submodule(module)._buffers[own] = tensor

    def unbind(self, names: list[str]) -> None:
        for name in names:
            for module, own in self.structure.slots[name]:
                original = self.structure.template.root.get_submodule(module)._parameters[own]
                self.network.root.get_submodule(module)._parameters[own] = original

    def named_constants(self) -> Iterator[tuple[str, Tensor]]:
        managed = {name for name, _ in statistics(self.network.root)}
        return ((name, buffer) for name, buffer in self.network.root.named_buffers() if name not in managed)

    def constants(self, device: str | torch.device, dtype: torch.dtype | None = None) -> dict[str, tuple[Tensor, int]]:
        """Moves buffers other than statistics, as Module.to does. Returns them with their versions."""
        moved = {}
        for name, buffer in list(self.named_constants()):
            module, _, own = name.rpartition(".")
            buffer = buffer.to(device, dtype if buffer.is_floating_point() else None)
            self.network.root.get_submodule(module)._buffers[own] = buffer
            moved[name] = (buffer, buffer._version)
        return moved

    def run(self, x: Tensor, around: Pass, training: bool, is_step: bool, momentum: float) -> Tensor:
        """Features, or logits if the head is not one linear layer. In a step of training the network is in training mode;
        otherwise only BatchNorm is, with this momentum, for which the statistics of batches are taken."""
        if self.mode != (training, is_step, momentum):
            self.mode = (training, is_step, momentum)
            self.network.root.train(training and is_step)
            for module, own in zip(self.batch_norms, self.momenta, strict=True):
                module.train(training)
                module.momentum = own if is_step else momentum
        return self.network.run(x, around)

    def again(self, f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """f(x) in the backward pass, which leaves BatchNorm's statistics as they are."""
        momenta = [module.momentum for module in self.batch_norms]
        for module in self.batch_norms:
            module.momentum = 0.0
        try:
            return f(x)
        finally:
            for module, momentum in zip(self.batch_norms, momenta, strict=True):
                module.momentum = momentum


def in_parameters_type(module: nn.Module, forward: Callable[..., Tensor], x: Tensor, *rest: Any) -> Tensor:
    """Normalization parameters stay fp32 in a run in bf16: computes in their type, and returns that of x."""
    own = next(p for p in module._parameters.values() if p is not None).dtype
    return forward(x, *rest) if own == x.dtype else forward(x.to(own), *rest).to(x.dtype)
