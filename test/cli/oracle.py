"""The training loop that sdp-train is compared with, in plain PyTorch: dense full models (library_models.py); hidden units
that a worker does not have are multiplied by 0; gradients are averaged over the owners by hand."""

import torch
from torch.nn import functional as F


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
    (step, worker) -> loss, steps from 1; (step, worker) -> number of correct predictions; and each worker's own
    BatchNorm statistics, meaningless for hidden units that it does not have."""
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
                logits = model(inputs, masks, regime.construction, buffers[worker])
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
                group["lr"] = learning_rate(step) * group["lr_factor"]
        optimizer.step()
    return losses, correct, buffers
