"""The columns of the table: what a measure is called, its quantity, and which tables show it."""

from collections.abc import Callable
from dataclasses import dataclass

from sdp_lab import measures
from sdp_lab.measures import last_eval, typical
from sdp_lab.runs import Run


@dataclass(frozen=True)
class Column:
    key: str  # with the unit: a column of the CSV file
    title: str  # for tables; the unit is added by quantity
    quantity: str  # a key of table.FORMATS
    value: Callable[[Run], float]  # NaN: not known, or not yet
    comparison: str = "none"  # with a baseline: none, ratio, difference
    detail: str = "terminal"  # the narrowest table that has it: terminal, document, file
    models: str = "all"  # for which printed tables show it: all, images, tokens; the CSV file has it for all


COLUMNS = [
    Column("accuracy", "accuracy", "share", last_eval("accuracy"), "difference", models="images"),
    Column("accuracy_uncorrected", "uncorrected", "share", last_eval("accuracy_uncorrected"), models="images"),
    Column("accuracy_ema", "averaged values", "share", last_eval("accuracy_ema"), detail="document", models="images"),
    Column("training_accuracy", "training accuracy", "share", measures.training_accuracy, detail="document", models="images"),
    Column("loss_nats", "loss", "nats", last_eval("loss"), "difference", models="tokens"),
    Column("perplexity", "perplexity", "perplexity", last_eval("perplexity"), "ratio", models="tokens"),
    Column("loss_uncorrected_nats", "uncorrected loss", "nats", last_eval("loss_uncorrected"), models="tokens"),
    Column("perplexity_uncorrected", "uncorrected perplexity", "perplexity", last_eval("perplexity_uncorrected"),
           detail="document", models="tokens"),
    Column("loss_ema_nats", "loss of averaged values", "nats", last_eval("loss_ema"), detail="document", models="tokens"),
    Column("subnetwork_accuracy_mean", "subnetworks", "share", last_eval("subnetwork_accuracy"), models="images"),
    Column("subnetwork_accuracy_min", "lowest", "share", last_eval("subnetwork_accuracy", min),
           detail="document", models="images"),
    Column("subnetwork_accuracy_max", "highest", "share", last_eval("subnetwork_accuracy", max),
           detail="document", models="images"),
    Column("subnetwork_loss_mean_nats", "subnetworks' loss", "nats", last_eval("subnetwork_loss"), models="tokens"),
    Column("subnetwork_loss_min_nats", "lowest loss", "nats", last_eval("subnetwork_loss", min),
           detail="document", models="tokens"),
    Column("subnetwork_loss_max_nats", "highest loss", "nats", last_eval("subnetwork_loss", max),
           detail="document", models="tokens"),
    Column("steps", "steps", "whole", measures.steps),
    Column("epochs", "epochs", "number", measures.epochs, detail="document"),
    Column("training_flops", "FLOPs", "count", measures.training_flops, "ratio"),
    Column("peak_tensor_memory_bytes", "tensor memory", "bytes", measures.peak_tensor_memory, "ratio"),
    Column("peak_tensor_memory_per_worker_bytes", "per worker", "bytes", measures.peak_tensor_memory_per_worker,
           detail="document"),
    Column("peak_process_memory_bytes", "process memory", "bytes", measures.peak_process_memory, detail="document"),
    Column("peak_activations_bytes", "activations", "bytes", measures.at_peak("activations_bytes"), detail="file"),
    Column("peak_weights_bytes", "weights", "bytes", measures.at_peak("weights_bytes"), detail="file"),
    Column("peak_gradients_bytes", "gradients", "bytes", measures.at_peak("gradients_bytes"), detail="file"),
    Column("peak_optimizer_bytes", "optimizer", "bytes", measures.at_peak("optimizer_bytes"), detail="file"),
    Column("peak_buckets_bytes", "buckets", "bytes", measures.at_peak("buckets_bytes"), detail="file"),
    Column("samples_per_s", "samples/s", "count", typical("samples_per_s")),
    Column("tokens_per_s", "tokens/s", "count", typical("tokens_per_s"), detail="document"),
    Column("flops_per_s", "FLOP/s", "count", typical("flops_per_s"), detail="document"),
    Column("utilization", "utilization", "share", typical("utilization"), detail="document"),
    Column("step_ms", "step time", "ms", typical("step_ms"), "ratio"),
    Column("data_wait_ms", "data wait", "ms", typical("data_wait_ms", max), detail="file"),
    Column("exchange_wait_ms", "exchange wait", "ms", typical("exchange_wait_ms"), detail="document"),
    Column("forward_ms", "forward", "ms", typical("times.forward_ms"), detail="file"),
    Column("backward_ms", "backward", "ms", typical("times.backward_ms"), detail="file"),
    Column("optimizer_ms", "optimizer's update", "ms", typical("times.optimizer_ms"), detail="file"),
    Column("sent_bytes_per_step", "sent/step", "bytes", measures.sent_bytes_per_step, "ratio"),
    Column("largest_worker_parameters", "parameters", "count", measures.largest_worker_parameters),
]  # fmt: skip
