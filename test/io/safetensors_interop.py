"""Our safetensors reader and writer against the safetensors package. Usage: safetensors_interop.py TOOL"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import safetensors.torch
import torch

FLOATS = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TENSORS = {
    "f64": FLOATS,
    "f32": FLOATS.float() * 1e30,
    "bf16": FLOATS.bfloat16(),
    "f16": FLOATS.half(),
    "i64": torch.tensor([-(2**63), -1, 0, 2**63 - 1]),
    "i32": torch.arange(-3, 3, dtype=torch.int32).reshape(1, 2, 3),
    "u8": torch.arange(256, dtype=torch.uint8)[1:],
    "bool": torch.tensor([True, False, True]),
    "scalar": torch.tensor(float("nan")),
    "empty": torch.zeros(3, 0, 2),
    "large": torch.arange(700_001.0).sin(),
    "": torch.ones(1),
    'größe "λ2" \\ \n 模型 🙂': torch.ones(2),
}


def check_both_ways(tool, source, target):
    """Values of every type, shape and name, each aligned; and a file without tensors and metadata."""
    for expected, metadata in ((TENSORS, {"step": "12", "größe": "λ\n\""}), ({}, None)):
        safetensors.torch.save_file(expected, source, metadata=metadata)
        printed = subprocess.run([tool, source, target], check=True, capture_output=True, text=True).stdout
        content, found = target.read_bytes(), safetensors.torch.load_file(target)
        assert found.keys() == expected.keys() and printed.split()[0] == str(len(content)), printed
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        assert length % 8 == 0 and header.get("__metadata__") == metadata
        for name, tensor in expected.items():
            bits = [values.flatten().view(torch.uint8) for values in (found[name], tensor)]
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
            assert bits[0].equal(bits[1]) and header[name]["data_offsets"][0] % tensor.element_size() == 0, name


def pack(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


FOUR = b"\0" * 4
VALID = {
    "valid": pack({"a": tensor()}, FOUR),
    "padded": pack(json.dumps({"a": tensor()}).encode() + b"   ", FOUR),
    "zero size between": pack({"a": tensor(), "b": tensor(shape=[0], offsets=(4, 4))}, FOUR),
    "unsorted": pack({"a": tensor(offsets=(4, 8)), "b": tensor()}, FOUR * 2),
    "metadata": pack({"__metadata__": {"k": "v"}, "a": tensor()}, FOUR),
}
INVALID = {
    "nothing": b"",
    "short": b"\0" * 7,
    "no header": pack(b""),
    "header beyond file": pack({"a": tensor()}, FOUR, length=10_000),
    "huge header": pack({"a": tensor()}, FOUR, length=2**63 + 5),
    "leading space": pack(b" " + json.dumps({"a": tensor()}).encode(), FOUR),
    "not JSON": pack(b"{\"a\": }"),
    "not UTF-8": pack(b"{\"\xff\": 1}"),
    "list": pack([]),
    "cut": VALID["valid"][:-1],
    "rest": VALID["valid"] + b"\0",
    "hole": pack({"a": tensor(offsets=(0, 4)), "b": tensor(offsets=(8, 12))}, FOUR * 3),
    "hole in front": pack({"a": tensor(offsets=(4, 8))}, FOUR * 2),
    "overlap": pack({"a": tensor(), "b": tensor()}, FOUR),
    "partial overlap": pack({"a": tensor(), "b": tensor(offsets=(2, 6))}, b"\0" * 6),
    "backwards": pack({"a": tensor(shape=[0], offsets=(4, 0))}, FOUR),
    "wrong size": pack({"a": tensor(shape=[2])}, FOUR),
    "overflow": pack({"a": tensor(shape=[2**62, 2**62, 16])}, FOUR),
    "overflow to fit": pack({"a": tensor(shape=[2**32, 2**32], offsets=(0, 0))}),
    "negative size": pack({"a": tensor(shape=[-1], offsets=(0, 0))}),
    "negative offset": pack({"a": tensor(offsets=(-4, 0))}),
    "float size": pack({"a": tensor(shape=[1.0])}, FOUR),
    "huge float size": pack(b'{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}}', FOUR),
    "three offsets": pack({"a": tensor(offsets=(0, 4, 4))}, FOUR),
    "unknown type": pack({"a": tensor(dtype="Q9")}, FOUR),
    "no type": pack({"a": {"shape": [1], "data_offsets": [0, 4]}}, FOUR),
    "tensor is a number": pack({"a": 1}),
    "metadata not text": pack({"__metadata__": {"k": 1}, "a": tensor()}, FOUR),
    "repeated tensor": pack(b'{"a":%s,"a":%s}' % ((json.dumps(tensor()).encode(),) * 2), FOUR),
    "repeated key": pack(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', FOUR),
}
# Forbidden by the format's description, but accepted by the package.
STRICTER_THAN_PACKAGE = {"leading space", "repeated tensor"}


def check_same_judgement(tool, path, copy):
    for name, content in (VALID | INVALID).items():
        path.write_bytes(content)
        try:
            safetensors.torch.load_file(path)
            python_accepts = True
        except Exception:  # of any type: the package refuses the file
            python_accepts = False
        assert python_accepts == (name in VALID or name in STRICTER_THAN_PACKAGE), name
        run = subprocess.run([tool, path, copy], capture_output=True, text=True)
        assert run.returncode == (0 if name in VALID else 3), f"{name}: exit code {run.returncode}, {run.stderr}"
        assert name in VALID or str(path) in run.stderr, name


with tempfile.TemporaryDirectory() as folder:
    files = [Path(folder) / name for name in ("python.safetensors", "ours.safetensors")]
    check_both_ways(sys.argv[1], *files)
    check_same_judgement(sys.argv[1], *files)
