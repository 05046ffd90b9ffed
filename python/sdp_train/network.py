"""A residual network as a torch.nn.Module, of which workers hold subnetworks (docs/own_network.md)."""

import functools
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

LAYERS = (nn.Linear, _ConvNd, _BatchNorm)


class NetworkError(Exception):
    """The network cannot be divided. The message says what to change."""


class Pass:
    """What happens around the branches of a forward pass. Here nothing: all branches are present, as outside of the program."""

    changes_output = False
    """Whether a branch's output is scaled or dropped at random."""

    def branch(self, i: int, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor | None:
        """f(x) of branch i; None if the branch is absent."""
        return f(x)

    def end(self, i: int) -> None:
        """The output of branch i was added."""


class Network(nn.Module):
    """x <- after(i, shortcut(i, x) + branch_i(x)) for every branch, between `stem` and `head`.

    A subclass has `stem` and `head`, methods or modules of one argument, and `branches`. A worker trains its own branches, and
    everything outside of the branches. The head of a network that reads tokens is nn.Linear(width, vocab_size, bias=False).
    """

    branches_per_block = 1
    """Consecutive branches with the same owners under `subnetwork.unit: block`."""
    whole_init = False
    """Initial values are those of the whole network, which every process builds once in its host's memory. False: those of
    every module's own `reset_parameters`, drawn for what a process stores."""

    def branches(self) -> Sequence[nn.Module]:
        """The modules f_i in the order of their places, each a function of one tensor."""
        raise NotImplementedError(f"{type(self).__name__}.branches is missing: return the list of modules f_i")

    def shortcut(self, i: int, x: Tensor) -> Tensor:
        """P_i(x), to which the output of branch i is added."""
        return x

    def after(self, i: int, x: Tensor) -> Tensor:
        """Applied to P_i(x) + f_i(x)."""
        return x

    def scaled_parameters(self, i: int) -> list[nn.Parameter]:
        """Parameters of branch i in which its output is linear, so that `eval.branch_scale` can be folded into them."""
        branch = self.branches()[i]
        while isinstance(branch, nn.Sequential) and len(branch) > 0:
            branch = branch[-1]
        return list(branch.parameters()) if isinstance(branch, LAYERS) else []

    def features(self, x: Tensor, around: Pass) -> Tensor:
        """The input of `head`."""
        x = self.stem(x)
        for i, branch in enumerate(self.branches()):
            out = around.branch(i, x, branch)
            x = self.shortcut(i, x)
            if out is not None:
                if out.shape != x.shape:
                    raise NetworkError(
                        f"branch {i} returns the shape {list(out.shape)}, and its shortcut {list(x.shape)}. "
                        "Expected the same: define shortcut(i, x), or let the branch keep the shape"
                    )
                x = x + out
            around.end(i)
            x = self.after(i, x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits, with all branches."""
        return self.head(self.features(x, Pass()))

    # What Structure and Instance use.

    @property
    def root(self) -> nn.Module:
        return self

    def run(self, x: Tensor, around: Pass) -> Tensor:
        features = self.features(x, around)
        return features if self.linear_head() else self.head(features)

    def linear_head(self) -> nn.Linear | None:
        return self.head if isinstance(self.head, nn.Linear) else None


class Divided:
    """A network of a library, whose blocks add their input themselves: block(x) = x + f(x)."""

    branches_per_block = 1
    whole_init = True

    def __init__(self, root: nn.Module, pattern: str) -> None:
        self.root = root
        self.names = [name for name, _ in root.named_modules() if matches(name, pattern)]
        if not self.names:
            raise NetworkError(f"branches={pattern!r}: {type(root).__name__} has no module of that name")

    def branches(self) -> list[nn.Module]:
        return [self.root.get_submodule(name) for name in self.names]

    def scaled_parameters(self, i: int) -> list[nn.Parameter]:
        return []

    def run(self, x: Tensor, around: Pass) -> Tensor:
        blocks = self.branches()
        for i, block in enumerate(blocks):
            block.forward = functools.partial(self._block, around, i, type(block).forward.__get__(block))
        try:
            return self.root(x)
        finally:
            for block in blocks:
                del block.forward

    def linear_head(self) -> None:
        return None

    @staticmethod
    def _block(around: Pass, i: int, forward: Callable[..., Tensor], x: Tensor, *rest: Any, **named: Any) -> Tensor:
        if around.changes_output:
            out = around.branch(i, x, lambda x: forward(x, *rest, **named) - x)
            y = x if out is None else x + out
        else:
            out = around.branch(i, x, lambda x: forward(x, *rest, **named))
            y = x if out is None else out
        around.end(i)
        return y


AnyNetwork = Network | Divided


def matches(name: str, pattern: str) -> bool:
    """Whether every part of the dotted name matches that of the pattern: features.*.* matches features.1.0."""
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


def divide(build: Callable[[], nn.Module], branches: str) -> Callable[[], Divided]:
    """A network for `train` and --network from one whose blocks add their input themselves, such as torchvision's and timm's.

    `build` makes it: a function without arguments. `branches` names its blocks: "features.[1357].*", with *, ? and [..] within
    a part of a name. Blocks that change the shape of their input are held by all workers. Initial values are those that `build`
    draws.
    """
    return lambda: Divided(build(), branches)
