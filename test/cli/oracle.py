"""The training loop that sdp-train is compared with, in plain PyTorch: dense full models (library_models.py); hidden units
that a worker does not have are multiplied by 0; gradients are averaged over the owners by hand."""

import copy

import torch
from torch.nn import functional as F


class Regime:
    """The owners of every unit, read from plan.json. A replica counts as a worker: number worker * replicas + replica."""

    def __init__(self, plan, branch_scale="none"):
        self.branch_scale = branch_scale
        self.construction, self.replicas = plan["construction"], plan["replicas"]
        self.workers = plan["workers"] * self.replicas
        self.units, self.masking = {}, {}  # by branch
        for unit in plan["units"]:
            self.units.setdefault(unit["branch"], []).append((unit["begin"], unit["end"], unit["owners"]))
            self.masking[unit["branch"]] = unit.get("masking", plan["masking"])

    def owned(self, worker, branch):
        """0/1 for every hidden unit of the branch"""
        units = self.units[branch]
        mask = torch.zeros(max(end for _, end, _ in units))
        for begin, end, owners in units:
            mask[begin:end] = float(worker // self.replicas in owners)
        return mask

    def forward_masks(self, worker, dtype):
        masked = [branch for branch, masking in self.masking.items() if masking == "forward"]
        masks = {branch: self.owned(worker, branch).to(dtype) for branch in masked}
        if self.branch_scale == "inverse":
            return {branch: mask / self.coverage(branch) for branch, mask in masks.items()}
        return masks

    def coverage(self, branch):
        return sum(self.owned(worker, branch).double().mean().item() for worker in range(self.workers)) / self.workers

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


def micro_batch_losses(model, regime, batches, step, worker, buffers, losses, correct):
    """Of each of a worker's micro-batches its share of the step's loss, whose values and correct predictions are counted."""
    masks = regime.forward_masks(worker, next(model.parameters()).dtype)
    micro_batches = batches(step, worker)
    for inputs, labels in micro_batches:
        logits = model(inputs, masks, regime.construction, buffers)
        loss = F.cross_entropy(logits.flatten(0, -2), labels.flatten()) / len(micro_batches)
        losses[step, worker] = losses.get((step, worker), 0) + loss.item()
        right = (logits.max(-1).indices == labels).sum().item()
        correct[step, worker] = correct.get((step, worker), 0) + right
        yield loss


def train(model, optimizer, regime, batches, steps, clip_norm=0, learning_rate=None, buffers=None):
    """The method in plain PyTorch. batches(step, worker) -> list of micro-batches (inputs, labels). learning_rate(step)
    is needed only if it is not constant. BatchNorm statistics begin with `buffers`, by worker, or the model's. Returns
    (step, worker) -> loss, steps from 1; (step, worker) -> number of correct predictions; and each worker's own
    BatchNorm statistics, meaningless for hidden units that it does not have."""
    losses, correct = {}, {}
    workers = range(regime.workers)
    buffers = buffers or [{name: b.clone() for name, b in model.named_buffers()} for _ in workers]
    parameters = dict(model.named_parameters())
    counts = {name: sum(regime.gradient_mask(model, name, p.shape, k) for k in workers) for name, p in parameters.items()}
    for step in range(1, steps + 1):
        sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
        for worker in workers:
            for loss in micro_batch_losses(model, regime, batches, step, worker, buffers[worker], losses, correct):
                gradients = torch.autograd.grad(loss, parameters.values(), allow_unused=True)
                for name, gradient in zip(parameters, gradients):
                    if gradient is not None:
                        sums[name] += gradient * regime.gradient_mask(model, name, gradient.shape, worker)
        for name, parameter in parameters.items():
            parameter.grad = sums[name] / counts[name]
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(parameters.values(), clip_norm)
        if learning_rate:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step) * group["lr_factor"]
        optimizer.step()
    return losses, correct, buffers


def train_locally(model, make_optimizer, regime, batches, steps, exchange, clip_norm=0, learning_rate=None, ema_decay=0):
    """Local steps in plain PyTorch: every worker trains a dense model of its own, whose unowned values stay as they are, and
    after every few steps the owners' mean change is applied to `model` by an outer SGD. Returns what train() returns, and the
    moving average of the values of `model`, as a model."""
    workers = range(regime.workers)
    parameters = dict(model.named_parameters())
    dtype = next(iter(parameters.values())).dtype
    masks = [{n: regime.gradient_mask(model, n, p.shape, k).to(dtype) for n, p in parameters.items()} for k in workers]
    count = {name: sum(mask[name] for mask in masks) for name in parameters}
    own = [copy.deepcopy(model) for _ in workers]
    optimizers = [make_optimizer(copied) for copied in own]
    momentum = {name: torch.zeros_like(p) for name, p in parameters.items()}
    average = copy.deepcopy(model)
    averages = dict(average.named_parameters())
    outer = {"lr": 0.7, "momentum": 0.9, "nesterov": True} | exchange.get("outer", {})
    warmup = exchange.get("warmup_steps", 0)
    losses, correct = {}, {}
    for step in range(1, steps + 1):
        for k in workers:
            before = {name: p.detach().clone() for name, p in own[k].named_parameters()}
            optimizers[k].zero_grad()
            for loss in micro_batch_losses(own[k], regime, batches, step, k, dict(own[k].named_buffers()), losses, correct):
                loss.backward()
            for name, p in own[k].named_parameters():
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad * masks[k][name]
            if clip_norm:
                torch.nn.utils.clip_grad_norm_(own[k].parameters(), clip_norm)
            for group in optimizers[k].param_groups if learning_rate else []:
                group["lr"] = learning_rate(step) * group["lr_factor"]
            optimizers[k].step()
            with torch.no_grad():
                for name, p in own[k].named_parameters():
                    p.copy_(torch.where(masks[k][name].bool(), p, before[name]))
        if not (step <= warmup or (step - warmup) % exchange["every_steps"] == 0 or step == steps):
            continue
        mine = [dict(copied.named_parameters()) for copied in own]
        with torch.no_grad():
            for name, anchor in parameters.items():
                change = sum((anchor - mine[k][name]) * masks[k][name] for k in workers) / count[name]
                momentum[name] = outer["momentum"] * momentum[name] + change
                anchor -= outer["lr"] * (change + outer["momentum"] * momentum[name] if outer["nesterov"] else momentum[name])
                averages[name].lerp_(anchor, 1 - ema_decay)
                states = [optimizers[k].state[mine[k][name]] for k in workers]
                for key in [key for key in states[0] if key != "step" and states[0][key] is not None]:
                    mean = sum(states[k][key] * masks[k][name] for k in workers) / count[name]
                    for k in workers:
                        kind = exchange.get("inner_state", "keep")
                        if kind != "keep":
                            states[k][key].copy_(mean * masks[k][name] if kind == "average" else torch.zeros_like(mean))
                for k in workers:
                    mine[k][name].copy_(anchor)
    return losses, correct, [dict(copied.named_buffers()) for copied in own], average
