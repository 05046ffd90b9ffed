"""Other programs that speak the protocols of the processes' rendezvous, before, during and after it."""

import contextlib
import hashlib
import hmac
import os
import resource
import signal
import socket
import stat
import subprocess
import time

import pytest
import torch.distributed as dist

import harness

SECTIONS = {
    "subnetwork": {"workers": 2, "coverage": 1},
    "train": {"max_steps": 100000, "log_every_steps": 1},
    "checkpoint": {"at_start": False},
}


def await_(condition, what, *ranks):
    deadline = time.monotonic() + 120
    while not condition():
        assert all(rank.poll() is None for rank in ranks), ranks[0].communicate()[0]
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.02)


def start(config, rank, port, **more):
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return harness.start("--config", config, env=place | {"RANK": str(rank), "LOCAL_RANK": str(rank)} | more,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@contextlib.contextmanager
def ending(*ranks):
    try:
        yield
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def introduction(key, number):
    """Of rank 1 to rank 0."""
    return b"00000001 " + hmac.new(key, number + b" 0 1", hashlib.sha256).hexdigest().encode()


def connect(listener):
    """Returns a connection to rank 0, and the number that rank 0 has sent."""
    host, port = listener.decode().split()
    client = socket.create_connection((host, int(port)), timeout=60)
    return client, client.recv(64, socket.MSG_WAITALL)


def is_turned_away(client):
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_strangers_do_not_reach_a_job_that_shares_the_run_folder(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, **SECTIONS)
    run_dir = tmp_path / "runs" / "run"
    file = run_dir / ".rendezvous.store"
    port = harness.free_port()
    first = start(config, 0, port)
    with ending(first):
        await_(file.exists, "store", first)
        for path in (file, run_dir / ".rendezvous"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not is_listening(port)

        # Who can read the folder may read the store; a stranger has to guess what it says.
        store = dist.FileStore(os.fspath(file), -1)
        listener, secret = store.get("sdp/watch/0"), store.get("sdp/watch/secret")
        del store  # the last process to leave removes the file
        assert len(secret) == 64
        for key in (b"", b"0" * 64, secret[:-1], secret.upper()):
            client, number = connect(listener)
            client.sendall(introduction(key, number))
            assert is_turned_away(client)
        # What is right for one connection is refused at another.
        (unfinished, number), (client, _) = connect(listener), connect(listener)
        client.sendall(introduction(secret, number))
        assert is_turned_away(client)
        silent = [socket.create_connection(("127.0.0.1", int(listener.split()[1]))) for _ in range(20)]

        second = start(config, 1, port)
        with ending(second):
            trace = run_dir / "trace.jsonl"
            await_(lambda: trace.exists() and trace.stat().st_size, "training", first, second)
            assert not is_listening(port)
            with pytest.raises(OSError):
                connect(listener)
            first.send_signal(signal.SIGTERM)
            for rank in (first, second):
                assert rank.wait(120) == 75
        for client in (unfinished, *silent):
            client.close()
    assert not list(run_dir.glob(".rendezvous*"))


def test_locks_that_do_not_work_are_reported_and_the_port_is_used(tmp_path, data):
    """As on a file system without locks: both calls fail, or have no effect."""
    library = tmp_path / "locks.so"
    source = tmp_path / "locks.c"
    for body in ("errno = ENOLCK; return -1;", "return 0;"):
        source.write_text(f"#include <errno.h>\nint flock(int d, int how) {{ (void)d, (void)how; {body} }}\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        name = f"run{len(body)}"
        config = harness.write_config(tmp_path, name, data, **SECTIONS | {"train": {"max_steps": 1}})
        port = harness.free_port()
        ranks = [start(config, rank, port, LD_PRELOAD=os.fspath(library)) for rank in (1, 0)]
        with ending(*ranks):
            outputs = [rank.communicate(timeout=240)[0] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], outputs
        assert f"127.0.0.1:{port}" in outputs[1] and "lock" in outputs[1]


WRONG_ADDRESSES = ["no-such-host.invalid", "a\tb"]  # others: test/comm/test_ranks.cpp


@pytest.mark.parametrize("address", WRONG_ADDRESSES)
def test_an_address_that_cannot_be_right_is_refused_at_once(tmp_path, data, address):
    config = harness.write_config(tmp_path, "run", data, **SECTIONS)
    env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": address,
           "MASTER_PORT": str(harness.free_port())}
    said = harness.run("--config", config, env=env, expect=2, timeout=120).stderr
    assert "MASTER_ADDR" in said and address.strip("\n\t\x7f ").split()[0].split("\t")[0] in said
    assert len(said.strip().splitlines()) == 1 and "MASTER_PORT" not in said


@pytest.mark.parametrize("processes, limits", [(1, (6, 8, 10)), (2, (6, 11, 16))])
def test_too_many_open_files_is_named_with_its_remedy(tmp_path, data, processes, limits):
    """At limits that some part of the program finds too low: files of the run folder, logs, sockets."""
    config = harness.write_config(tmp_path, "run", data, **SECTIONS | {"train": {"max_steps": 1}})
    arguments = ["--config", config, "--nproc", processes, "--set", "train.collective_timeout_s=5"]
    for limit in limits:
        own = ["--set", f"name=run{limit}"]
        process = harness.start(*arguments, *own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
        said = process.communicate(timeout=120)[0]
        assert process.returncode in (2, 3, 4) and "ulimit -n" in said, said
        assert "disk" not in said and "MASTER_PORT" not in said
