#!/usr/bin/env python3
"""Compares step times of subnetworks and plain data parallelism over a slow link between two hosts. Needs root and iproute2.

    bench/two_hosts.py [--mbit RATE] [--rounds N] [--steps N] [--variant 'NAME=key=value,key=value'] [--out FOLDER]

The hosts are two network namespaces, joined by a veth pair whose ends send at a limited rate (tc's token bucket
filter). Four ranks, two per host, with torchrun's variables: ranks 0 and 1 on the first host. The model, a wide MLP with
batches of one image, is limited by the link.

Variants: plain data parallelism (coverage 1, optimizer.shard false), and coverage 1/2 with forward masking, its owner
sets by `balanced`, by `window`, and by a plan file in which every branch belongs to the two ranks of one host. --variant
adds variants of coverage 1/2, with keys as in --set: 'pack=subnetwork.placement=pack'. Variants take turns. Bytes over
the link are the sum of both veth interfaces' counters over the measured steps, with all headers; the metrics' bytes
per process include those that stay within a host. The first interval of a run is dropped.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import runs

RANKS, HOSTS = 4, 2
ADDRESSES = ["10.213.7.1", "10.213.7.2"]
PORT = "29600"
EXPERIMENT = {
    "model": {"name": "mlp", "width": 64, "hidden_width": 4096, "depth": 8},
    "data": {"name": "cifar10", "augment": []},
    "subnetwork": {"workers": RANKS},
    "train": {"batch_size_per_worker": 1, "precision": "fp32", "device": "cpu", "log_every_steps": 2},
}
PLAIN = "C = 1, plain DDP"
HALF = {"coverage": "1/2", "construction": "block", "masking": "forward"}


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class TwoHosts:
    """Two namespaces and the link between them; removed with this object."""

    def __init__(self, mbit):
        self.names = [f"sdp-{os.getpid()}-{host}" for host in range(HOSTS)]
        self.mbit = mbit

    def __enter__(self):
        try:
            for name in self.names:
                ip("netns", "add", name)
            # Created inside, so that the machine's own network never sees it.
            ends = f"wire type veth peer name wire netns {self.names[1]}".split()
            ip("-n", self.names[0], "link", "add", *ends)
            for name, address in zip(self.names, ADDRESSES):
                ip("-n", name, "address", "add", f"{address}/24", "dev", "wire")
                for device in ("lo", "wire"):
                    ip("-n", name, "link", "set", device, "up")
                limit = f"rate {self.mbit}mbit burst 128kb latency 100ms".split()
                subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "wire", "root", "tbf", *limit], check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)

    def inside(self, host):
        return ["ip", "netns", "exec", self.names[host]]

    def sent_bytes(self):
        """Bytes sent by both ends of the link since their creation."""
        count = ["cat", "/sys/class/net/wire/statistics/tx_bytes"]
        return sum(int(subprocess.check_output(self.inside(host) + count)) for host in range(HOSTS))


@contextlib.contextmanager
def ranks_running(hosts, command, logs):
    ranks = []
    try:
        for rank in range(RANKS):
            local = RANKS // HOSTS
            place = {
                "RANK": rank,
                "WORLD_SIZE": RANKS,
                "LOCAL_RANK": rank % local,
                "LOCAL_WORLD_SIZE": local,
                "MASTER_ADDR": ADDRESSES[0],
                "MASTER_PORT": PORT,
                "GLOO_SOCKET_IFNAME": "wire",
            }
            env = runs.environment(**{key: str(value) for key, value in place.items()})
            with (logs / f"rank-{rank}.txt").open("w") as log:
                words = hosts.inside(rank // local) + command
                ranks.append(subprocess.Popen(words, env=env, stdout=log, stderr=log))
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()  # `ip netns exec` has become the program
            rank.wait()


def run(hosts, binary, config, overrides, run_dir, steps):
    """Median step time in ms, bytes per step over the link, and bytes that a process reports."""
    command = [str(binary), "--config", str(config)]
    for override in overrides:
        command += ["--set", override]
    seen = []  # (step, bytes over the link) at each line of the metrics
    with ranks_running(hosts, command, run_dir.parent.parent) as ranks:
        while any(rank.poll() is None for rank in ranks) and not (seen and seen[-1][0] == steps):
            lines = runs.train_lines(run_dir)
            if lines and (not seen or lines[-1]["step"] > seen[-1][0]):
                seen.append((lines[-1]["step"], hosts.sent_bytes()))
            time.sleep(0.01)
        if any(rank.wait() for rank in ranks):
            logs = sorted(run_dir.parent.parent.glob("rank-*.txt"))
            raise RuntimeError("sdp-train failed\n" + "\n".join(log.read_text() for log in logs))
    lines = runs.train_lines(run_dir)
    (first, bytes_first), (last, bytes_last) = seen[0], seen[-1]
    return (
        statistics.median(line["step_ms"] for line in lines[1:]),
        (bytes_last - bytes_first) / (last - first),
        lines[-1]["bytes_sent"],
    )


def plan_by_host(binary, config, folder):
    """A plan in which every unit belongs to the ranks of one host, alternating."""
    command = [str(binary), "plan", "--config", str(config), "--set", "subnetwork.coverage=1/2", "--json"]
    plan = json.loads(subprocess.check_output(command, env=runs.environment()))
    for number, unit in enumerate(plan["units"]):
        unit["owners"] = [[0, 1], [2, 3]][number % HOSTS]
    path = folder / "by-host.json"
    path.write_text(json.dumps(plan))
    return path


def overrides_of(binary, config, folder, more):
    """Variant -> its settings."""
    half = [f"subnetwork.{key}={value}" for key, value in HALF.items()]
    by_host = plan_by_host(binary, config, folder)
    variants = {
        PLAIN: ["subnetwork.coverage=1", "optimizer.shard=false"],
        "C = 1/2, balanced": half,
        "C = 1/2, window": [*half, "subnetwork.assignment=window"],
        "C = 1/2, within hosts": [*half, "subnetwork.assignment=file", f"subnetwork.assignment_file={by_host}"],
    }
    for variant in more:
        name, _, settings = variant.partition("=")
        variants[f"C = 1/2, {name}"] = [*half, *settings.split(",")]
    return variants


def lambda2_of(binary, config, overrides):
    command = [str(binary), "plan", "--config", str(config), "--json"]
    for override in overrides:
        command += ["--set", override]
    return json.loads(subprocess.check_output(command, env=runs.environment()))["lambda2"]


def measure(arguments, folder):
    data = runs.write_cifar10(folder / "images")
    length = {"data": {"path": str(data)}, "train": {"max_steps": arguments.steps}}
    config = runs.write_spec(folder, "run", EXPERIMENT, length)
    variants = overrides_of(arguments.binary, config, folder, arguments.variant)
    results = {name: {"step_ms": [], "wire_bytes": []} for name in variants}
    loads = []
    with TwoHosts(arguments.mbit) as hosts:
        for _ in range(arguments.rounds):
            loads.append(runs.load())
            for name, overrides in variants.items():
                step_ms, wire, sent = run(
                    hosts, arguments.binary, config, overrides, folder / "runs" / "run", arguments.steps
                )
                shutil.rmtree(folder / "runs")
                results[name]["step_ms"].append(step_ms)
                results[name]["wire_bytes"].append(wire)
                results[name]["process_bytes"] = sent
    for name, overrides in variants.items():
        results[name]["lambda2"] = lambda2_of(arguments.binary, config, overrides)
    return {"mbit": arguments.mbit, "load": loads, "variants": results}


def report(result):
    plain = result["variants"][PLAIN]
    rows = []
    for name, one in result["variants"].items():
        times, wire = one["step_ms"], one["wire_bytes"]
        rows.append(
            [
                name,
                f"{statistics.median(times):.0f}",
                f"{runs.median_ratio(times, plain['step_ms']):.2f}",
                f"{statistics.median(wire) / 1e6:.2f}",
                f"{runs.median_ratio(wire, plain['wire_bytes']):.2f}",
                f"{one['process_bytes'] / 1e6:.2f}",
                f"{one['lambda2']:.2f}",
            ]
        )
    header = ["variant", "ms/step", "/ plain", "MB over the wire", "/ plain", "MB sent by a process", "lambda2"]
    loads = ", ".join(f"{load:.1f}" for load in result["load"])
    return (
        f"{runs.table(header, rows)}\n\nPer step, medians of {len(result['load'])} rounds; {result['mbit']} Mbit/s "
        f"each way. Load of the machine before each round: {loads}."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=200, help="rate of the link in each direction, in Mbit/s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="steps per run, even and at least 6")
    parser.add_argument("--variant", action="append", default=[], help="NAME=key=value,key=value")
    parser.add_argument("--binary", type=pathlib.Path, default=runs.BINARY)
    parser.add_argument("--out", type=pathlib.Path, help="folder for results.json and results.md")
    arguments = parser.parse_args()
    if arguments.steps < 6 or arguments.steps % 2:
        parser.error(f"--steps {arguments.steps}: expected an even number of at least 6")
    if os.geteuid() != 0:
        sys.exit("two_hosts.py: network namespaces need root")
    missing = [tool for tool in ("ip", "tc") if not shutil.which(tool)]
    if missing:
        sys.exit(f"two_hosts.py: no {' and no '.join(missing)}; they come with the package iproute2")
    # A signal must not leave the namespaces behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))

    with tempfile.TemporaryDirectory() as scratch:
        result = measure(arguments, pathlib.Path(scratch))
    text = report(result)
    print(text)
    if arguments.out:
        runs.write_results(arguments.out, result, text)


if __name__ == "__main__":
    main()
