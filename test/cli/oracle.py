"""Plain PyTorch models and training loops that sdp-train is compared with. Dense full models; hidden units that a
worker does not have are multiplied by 0; gradients are averaged over the owners by hand.

A model's forward takes `masks`: branch name -> 0/1 for every hidden unit, for branches that are not complete. In block
construction, the mask is all 1 or all 0, and applies to the branch with its norms. In neuron construction, it applies to
the hidden units; the output's norm or bias stays."""

import torch
from torch import nn
from torch.nn import functional as F


class Oracle(nn.Module):
    def run(self, buffers, inputs, masks, construction):
        return torch.func.functional_call(self, buffers, (inputs, masks, construction))


class BasicBlock(nn.Module):
    def __init__(self, in_channels, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or in_channels != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x, mask, construction):
        shortcut = x if self.downsample is None else self.downsample(x)
        hidden = F.relu(self.bn1(self.conv1(x)))
        if mask is not None and construction == "neuron":
            hidden = hidden * mask.view(1, -1, 1, 1)
        branch = self.bn2(self.conv2(hidden))
        if mask is not None and construction == "block":
            branch = branch * mask[0]
        return F.relu(shortcut + branch)


class ResNet18(Oracle):
    """ResNet-18 with the 3x3 stem of the CIFAR variants, any width, torchvision's parameter names."""

    def __init__(self, width, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.branches = []
        channels = width
        for stage in range(4):
            blocks = nn.ModuleList()
            for i in range(2):
                out = width << stage
                blocks.append(BasicBlock(channels, out, 2 if stage > 0 and i == 0 else 1))
                self.branches.append(f"layer{stage + 1}.{i}")
                channels = out
            setattr(self, f"layer{stage + 1}", blocks)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x, masks, construction="block"):
        x = F.relu(self.bn1(self.conv1(x)))
        for name in self.branches:
            x = self.get_submodule(name)(x, masks.get(name), construction)
        return self.fc(x.mean(dim=(2, 3)))

    def branch_of(self, parameter):
        """Name of the branch a parameter belongs to, None when it is shared."""
        for name in self.branches:
            if parameter.startswith(name + ".") and ".downsample." not in parameter:
                return name
        return None

    def slice_of(self, parameter):
        """(dimension, stacked blocks) along which the hidden width lies; None where it does not."""
        layer = parameter.split(".")[-2]
        if self.branch_of(parameter) is None or layer == "bn2":
            return None
        return (1, 1) if layer == "conv2" else (0, 1)


class Bottleneck(nn.Module):
    """The hidden units are conv2's channels."""

    def __init__(self, in_channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or in_channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x, mask, construction):
        shortcut = x if self.downsample is None else self.downsample(x)
        hidden = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        if mask is not None and construction == "neuron":
            hidden = hidden * mask.view(1, -1, 1, 1)
        branch = self.bn3(self.conv3(hidden))
        if mask is not None and construction == "block":
            branch = branch * mask[0]
        return F.relu(shortcut + branch)


class ResNet50(Oracle):
    """ResNet-50 with the 3x3 stem of the CIFAR variants, any width, torchvision's parameter names."""

    def __init__(self, width, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.branches = []
        channels = width
        for stage, depth in enumerate([3, 4, 6, 3]):
            blocks = nn.ModuleList()
            for i in range(depth):
                blocks.append(Bottleneck(channels, width << stage, 2 if stage > 0 and i == 0 else 1))
                self.branches.append(f"layer{stage + 1}.{i}")
                channels = 4 * width << stage
            setattr(self, f"layer{stage + 1}", blocks)
        self.fc = nn.Linear(channels, classes)

    forward = ResNet18.forward
    branch_of = ResNet18.branch_of

    def slice_of(self, parameter):
        """(dimension, stacked blocks) along which the hidden width lies; None where it does not."""
        rules = {"conv2": (0, 1), "bn2": (0, 1), "conv3": (1, 1)}
        return rules.get(parameter.split(".")[-2]) if self.branch_of(parameter) else None


class MlpBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0), nn.Linear(hidden, width))

    def forward(self, x, mask, construction):
        hidden = self.mlp[:2](self.norm(x))
        if mask is not None and construction == "neuron":
            hidden = hidden * mask
        out = self.mlp[3](hidden)
        return out * mask[0] if mask is not None and construction == "block" else out


class Mlp(Oracle):
    def __init__(self, width, depth, hidden, classes=10):
        super().__init__()
        self.stem = nn.Linear(3 * 32 * 32, width)
        self.blocks = nn.ModuleList(MlpBlock(width, hidden) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x, masks, construction="block"):
        x = self.stem(x.flatten(1))
        for i, block in enumerate(self.blocks):
            x = x + block(x, masks.get(f"blocks.{i}"), construction)
        return self.head(x)

    def branch_of(self, parameter):
        return ".".join(parameter.split(".")[:2]) if parameter.startswith("blocks.") else None

    def slice_of(self, parameter):
        rest = parameter.split(".", 2)[-1]
        return {"mlp.0.weight": (0, 1), "mlp.0.bias": (0, 1), "mlp.3.weight": (1, 1)}.get(rest)


class Regime:
    """The owners of every unit, read from plan.json. A replica counts as a worker: number worker * replicas + replica."""

    def __init__(self, plan):
        self.construction, self.masking, self.replicas = plan["construction"], plan["masking"], plan["replicas"]
        self.workers = plan["workers"] * self.replicas
        self.units = {}
        for unit in plan["units"]:
            self.units.setdefault(unit["branch"], []).append((unit["begin"], unit["end"], unit["owners"]))

    def owned(self, worker, branch):
        """0/1 for every hidden unit of the branch"""
        units = self.units[branch]
        mask = torch.zeros(max(end for _, end, _ in units))
        for begin, end, owners in units:
            mask[begin:end] = float(worker // self.replicas in owners)
        return mask

    def forward_masks(self, worker, dtype):
        if self.masking == "backward":
            return {}
        return {branch: self.owned(worker, branch).to(dtype) for branch in self.units}

    def gradient_mask(self, model, name, shape, worker):
        """0/1, broadcast over the parameter: 1 where this worker's gradient counts."""
        branch = model.branch_of(name)
        if branch is None:
            return torch.ones(())
        owned, rule = self.owned(worker, branch), model.slice_of(name)
        if self.construction == "block":
            return owned[0]
        if rule is None:
            return torch.ones(())
        dim, blocks = rule
        each = shape[dim] // blocks // len(owned)
        mask = owned.repeat_interleave(each).repeat(blocks)
        return mask.view([-1 if d == dim else 1 for d in range(len(shape))])


def train(model, optimizer, regime, batches, steps, clip_norm=0, learning_rate=None, buffers=None):
    """The method in plain PyTorch. batches(step, worker) -> list of micro-batches (inputs, labels). learning_rate(step)
    is needed only if it is not constant. BatchNorm statistics begin with `buffers`, by worker, or the model's. Returns
    (step, worker) -> loss, steps from 1; (step, worker) -> number of correct predictions; and each worker's own BatchNorm statistics, meaningless for
    hidden units that it does not have."""
    losses, correct = {}, {}
    workers = range(regime.workers)
    buffers = buffers or [{name: b.clone() for name, b in model.named_buffers()} for _ in workers]
    parameters = dict(model.named_parameters())
    dtype = next(iter(parameters.values())).dtype
    counts = {name: sum(regime.gradient_mask(model, name, p.shape, k) for k in workers) for name, p in parameters.items()}
    for step in range(1, steps + 1):
        sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
        for worker in workers:
            masks = regime.forward_masks(worker, dtype)
            micro_batches = batches(step, worker)
            for inputs, labels in micro_batches:
                logits = model.run(buffers[worker], inputs, masks, regime.construction)
                loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten())
                losses[step, worker] = losses.get((step, worker), 0) + loss.item() / len(micro_batches)
                right = (logits.max(-1).indices == labels).sum().item()
                correct[step, worker] = correct.get((step, worker), 0) + right
                gradients = torch.autograd.grad(loss, parameters.values(), allow_unused=True)
                for name, gradient in zip(parameters, gradients):
                    if gradient is not None:
                        mask = regime.gradient_mask(model, name, gradient.shape, worker)
                        sums[name] += gradient * mask / len(micro_batches)
        for name, parameter in parameters.items():
            parameter.grad = sums[name] / counts[name]
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters.values(), clip_norm)
        if learning_rate:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step)
        optimizer.step()
    return losses, correct, buffers
