"""PyTorch's side: which forms of it there are, and a run of one."""

import dataclasses
import importlib.util
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterable

from gpuhour.jobs import GRACE_S, Context, OutOfTime, last_line
from gpuhour.runs import free_port

INTERVAL = 10  # steps of which a time is taken, as sdp-train's lines
# Ours makes malloc keep freed memory, with huge pages, for later steps (lib/process/allocations.cpp); these settings do the same
# for a peer.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
FORMS = ("foreach", "fused")
TEXT = ("ddp-foreach-user", "ddp-fused", "ddp-fused-compiled", "fsdp2-fused", "fsdp2-fused-compiled")
IMAGES = (*TEXT[:3], "ddp-fused-channels_last", "fsdp2-foreach", "fsdp2-foreach-compiled")  # FSDP2 has no fused SGD
IMAGES_ON_GPU = (*IMAGES, "ddp-fused-compiled-channels_last")
GRAMMAR = "ddp|fsdp2, then any of -foreach|-fused -compiled -channels_last -autocast -user"


@dataclasses.dataclass(frozen=True)
class Peer:
    """One form of PyTorch, from a name like ddp-fused-compiled."""

    name: str

    def __post_init__(self) -> None:
        words = self.name.split("-")
        options = {*FORMS, "compiled", "channels_last", "autocast", "user"}
        if words[0] not in ("ddp", "fsdp2") or not options.issuperset(words[1:]) or self.has("foreach") == self.has("fused"):
            raise ValueError(f"found {self.name!r}, expected {GRAMMAR}")

    def has(self, word: str) -> bool:
        return word in self.name.split("-")

    @property
    def form(self) -> str:
        return "foreach" if self.has("foreach") else "fused"

    def label(self, processes: int) -> str:
        parallel = {"ddp": " DDP" if processes > 1 else "", "fsdp2": " FSDP2"}[self.name.split("-")[0]]
        words = [word for word in self.name.split("-")[1:] if word != "user"]
        return ", ".join([f"PyTorch{parallel}", *words, *(["as users start it"] if self.has("user") else [])])

    def left_out(self, processes: int, on_gpu: bool) -> str:
        """Why it cannot run here, or nothing."""
        if self.has("fsdp2") and processes == 1:
            return "one process has nothing to shard"
        if self.has("compiled") and not shutil.which(os.environ.get("CXX", "g++")):
            return "torch.compile finds no C++ compiler (g++, or CXX)"
        if self.has("compiled") and on_gpu and importlib.util.find_spec("triton") is None:
            return "torch.compile finds no triton"
        return ""


def rank_environment(peer: Peer, rank: int, processes: int, port: int, threads: int) -> dict[str, str]:
    """Like torchrun's. As users start it: torchrun's one thread of several processes, and malloc as it is."""
    values = (rank, processes, rank, processes, "127.0.0.1", port)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    more = {"PYTHONPATH": str(pathlib.Path(__file__).parent.parent), "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    if not peer.has("user"):
        more |= KEEP_MEMORY | {"OMP_NUM_THREADS": str(threads)}
    elif processes > 1:
        more |= {"OMP_NUM_THREADS": "1"}
    return dict(zip(names, map(str, values), strict=True)) | more


def run_peer(context: Context, peer: Peer, model: str, options: Iterable[object], *, processes: int, threads: int) -> dict:
    """Runs torch_rank.py in every process and returns what its first one tells. `options`: torch_rank.py's own."""
    port = free_port()
    command = [context.environment["PYTHON"], "-m", "benchmark.torch_rank", "--model", model, "--peer", peer.name, *options]
    logs = [context.log / f"{model}-{processes}-{peer.name}-{rank}.txt" for rank in range(processes)]
    begins = [log.stat().st_size if log.exists() else 0 for log in logs]
    ranks = [
        context.start(command, log=log, env=rank_environment(peer, rank, processes, port, threads))
        for rank, log in enumerate(logs)
    ]
    try:
        while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
            if context.left_s() <= GRACE_S:
                raise OutOfTime(f"{peer.name} did not end in time")
            time.sleep(0.02)
        failed = next((n for n, rank in enumerate(ranks) if rank.poll()), None)
    finally:
        context.end_all()  # one that failed leaves the others waiting
    texts = [log.read_bytes()[begin:].decode(errors="replace") for log, begin in zip(logs, begins, strict=True)]
    if failed is not None:
        raise RuntimeError(f"rank {failed} ended with {ranks[failed].returncode}: {last_line(texts[failed])}")
    return json.loads(last_line_of_json(texts[0]))


def last_line_of_json(text: str) -> str:
    return [line for line in text.splitlines() if line.startswith("{")][-1]
