"""Passes by the program run_model (run_model.cpp says what it does). RUN_MODEL is its path. One process makes all passes of a
session, as starting it takes longer than most of them."""

import atexit
import functools
import os
import subprocess

from safetensors.torch import load



@functools.cache
def program():
    process = subprocess.Popen(
        [os.environ["RUN_MODEL"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # most passes are tiny
    )
    atexit.register(process.communicate)
    return process


def one_pass(folder, worker, mode="train"):
    """With folder/spec.yaml and folder/in.safetensors; the tensors of folder/out.safetensors, which may be written again."""
    process = program()
    process.stdin.write(f"{folder}\t{worker}\t{mode}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    assert answer == "ok\n", answer or "run_model ended"
    return load((folder / "out.safetensors").read_bytes())
