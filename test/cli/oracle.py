"""Plain PyTorch models and training loops that sdp-train is compared with. Dense full models; a worker's absent
branches are multiplied by 0; gradients are averaged over the owners by hand."""

import torch
from torch import nn
from torch.nn import functional as F


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

    def forward(self, x, present):
        shortcut = x if self.downsample is None else self.downsample(x)
        branch = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(shortcut + present * branch)


class ResNet18(nn.Module):
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

    def forward(self, x, present):
        """present: branch name -> 0 or 1"""
        x = F.relu(self.bn1(self.conv1(x)))
        for name in self.branches:
            x = self.get_submodule(name)(x, present.get(name, 1))
        return self.fc(x.mean(dim=(2, 3)))

    def branch_of(self, parameter):
        """Name of the branch a parameter belongs to, None when it is shared."""
        for name in self.branches:
            if parameter.startswith(name + ".") and ".downsample." not in parameter:
                return name
        return None


class MlpBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0), nn.Linear(hidden, width))

    def forward(self, x):
        return self.mlp(self.norm(x))


class Mlp(nn.Module):
    def __init__(self, width, depth, hidden, classes=10):
        super().__init__()
        self.stem = nn.Linear(3 * 32 * 32, width)
        self.blocks = nn.ModuleList(MlpBlock(width, hidden) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x, present):
        x = self.stem(x.flatten(1))
        for i, block in enumerate(self.blocks):
            x = x + present.get(f"blocks.{i}", 1) * block(x)
        return self.head(x)

    def branch_of(self, parameter):
        return ".".join(parameter.split(".")[:2]) if parameter.startswith("blocks.") else None


def train(model, optimizer, owners, workers, batches, steps, clip_norm=0, learning_rate=None):
    """The method, written out. owners: branch -> workers that hold it. batches(step, worker) -> list of
    micro-batches (images, labels). learning_rate(step), where it is not constant. Returns (step, worker) -> loss, steps from 1, and each worker's own BatchNorm
    statistics, which mean nothing in branches it does not hold."""
    losses = {}
    buffers = [{name: b.clone() for name, b in model.named_buffers()} for _ in range(workers)]
    parameters = dict(model.named_parameters())
    for step in range(1, steps + 1):
        sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
        for worker in range(workers):
            present = {branch: float(worker in held) for branch, held in owners.items()}
            micro_batches = batches(step, worker)
            for images, labels in micro_batches:
                loss = F.cross_entropy(torch.func.functional_call(model, buffers[worker], (images, present)), labels)
                losses[step, worker] = losses.get((step, worker), 0) + loss.item() / len(micro_batches)
                gradients = torch.autograd.grad(loss, parameters.values(), allow_unused=True)
                for name, gradient in zip(parameters, gradients):
                    branch = model.branch_of(name)
                    if gradient is not None and (branch is None or worker in owners[branch]):
                        sums[name] += gradient / len(micro_batches)
        for name, parameter in parameters.items():
            branch = model.branch_of(name)
            parameter.grad = sums[name] / (workers if branch is None else len(owners[branch]))
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters.values(), clip_norm)
        if learning_rate:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step)
        optimizer.step()
    return losses, buffers
