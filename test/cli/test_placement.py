"""`subnetwork.placement`: processes on several nodes, here two of two ranks each as torchrun would number them."""

import json

import pytest

import harness

NODES, PER_NODE = 2, 2
WORLD = NODES * PER_NODE


def environment_of(rank, port):
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(WORLD),
        "LOCAL_RANK": str(rank % PER_NODE),
        "LOCAL_WORLD_SIZE": str(PER_NODE),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def run_ranks(arguments_of, expect):
    """Runs one process per rank; returns their output."""
    port = harness.free_port()
    options = {"stdout": -1, "stderr": -1, "text": True}  # pipes
    ranks = [harness.start(*arguments_of(rank), env=environment_of(rank, port), **options) for rank in range(WORLD)]
    texts = []
    try:
        for rank in ranks:
            out, err = rank.communicate(timeout=300)
            texts.append(out + err)
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [expect] * WORLD, "\n".join(texts)
    return texts


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Owner sets in which no worker shares a unit with its neighbor by number."""

    def make(workers, sets):
        folder = tmp_path_factory.mktemp("plan")
        subnetwork = {"workers": workers, "coverage": f"{len(sets[0])}/{workers}"}
        config = harness.write_config(folder, "plan", folder, subnetwork=subnetwork)
        plan = json.loads(harness.run("plan", "--config", config, "--json").stdout)
        for number, unit in enumerate(plan["units"]):
            unit["owners"] = sets[number % len(sets)]
        path = folder / "published.json"
        path.write_text(json.dumps(plan))
        return {**subnetwork, "assignment": "file", "assignment_file": str(path)}

    return make


# With a worker per process, process i is worker i; with two, it is workers 2 i and 2 i + 1.
ONE_EACH = (4, [[0, 2], [1, 3]])
TWO_EACH = (8, [[0, 1, 4, 5], [2, 3, 6, 7]])


def test_placement_does_not_change_the_experiment(tmp_path, data, published):
    """Traces and checkpoints are the same bit by bit for every placement."""
    subnetwork = published(*TWO_EACH)
    files = {}
    for placement, nodes in (("in_order", [0, 0, 1, 1]), ("pack", [0, 1, 0, 1])):
        config = harness.write_config(
            tmp_path, placement, data, subnetwork={**subnetwork, "placement": placement},
            train={"max_steps": 3, "precision": "fp32"},
        )
        texts = run_ranks(lambda rank: ["--config", config], expect=0)
        run_dir = tmp_path / "runs" / placement
        plan = json.loads((run_dir / "plan.json").read_text())
        assert [process["node"] for process in plan["per_process"]] == nodes
        assert plan["nodes"]["placement"] == placement and plan["nodes"]["processes_per_node"] == PER_NODE
        assert "assembled full model" in texts[0]
        checkpoints = sorted((run_dir / "checkpoints").glob("*/*.safetensors"))
        assert len(checkpoints) == 2 * WORLD
        files[placement] = {path.relative_to(run_dir): harness.sha256(path) for path in checkpoints}
        files[placement]["trace"] = harness.sha256(run_dir / "trace.jsonl")
    assert files["in_order"] == files["pack"]


def test_ranks_become_the_processes_of_their_node(tmp_path, data, published):
    """Rank 1, on the first node, runs process 2 under pack: a message about process 2 comes from its options."""
    subnetwork = {**published(*ONE_EACH), "placement": "pack"}
    config = harness.write_config(tmp_path, "run", data, subnetwork=subnetwork)
    odd = lambda rank: ["--set", "optimizer.lr=0.04"] if rank == 1 else []
    for text in run_ranks(lambda rank: ["--config", config, *odd(rank)], expect=2):
        assert "The spec is not the same on all processes" in text and "these ranks differ: 2 (" in text


def test_ranks_that_are_not_numbered_node_by_node_are_refused(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, subnetwork={"placement": "pack"})
    env = {**environment_of(1, harness.free_port()), "LOCAL_RANK": "0"}
    text = harness.run("--config", config, env=env, expect=2).stderr
    assert "subnetwork.placement: found pack, but rank 1 of 4 is number 0 of 2 on its node" in text
    assert "--distribution=block" in text and "in_order" in text


def test_placement_may_change_on_resume(tmp_path, data):
    """One node: nothing is moved, and nothing is refused."""
    run_dir = harness.train(tmp_path, "run", data, 2, train={"max_steps": 2})
    config = harness.write_config(tmp_path, "run", data, subnetwork={"placement": "pack"}, train={"max_steps": 3})
    harness.run("--config", config, "--nproc", 2, "--resume")
    assert harness.json_lines(run_dir / "trace.jsonl")[-1]["step"] == 3
