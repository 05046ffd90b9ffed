"""Our safetensors reader and writer against the safetensors package. Usage: safetensors_interop.py TOOL"""

import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import safetensors
import safetensors.torch
import torch


def tensors():
    generator = torch.Generator().manual_seed(0)
    floats = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    return {
        "f64": floats,
        "f32": floats.float() * 1e30,
        "bf16": floats.bfloat16(),
        "f16": floats.half(),
        "i64": torch.tensor([-(2**63), -1, 0, 2**63 - 1]),
        "i32": torch.arange(-3, 3, dtype=torch.int32).reshape(1, 2, 3),
        "u8": torch.arange(256, dtype=torch.uint8)[1:],
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(float("nan")),
        "empty": torch.zeros(3, 0, 2),
        "large": torch.randn(700_001, generator=generator),
        "": torch.ones(1),
        'größe "λ2" \\ \n 模型 🙂': torch.ones(2),
    }


def same(a, b):
    bits = [tensor.flatten().view(torch.uint8) for tensor in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and bits[0].equal(bits[1])


def check_both_ways(tool, folder):
    source, target = os.path.join(folder, "python.safetensors"), os.path.join(folder, "ours.safetensors")
    expected, metadata = tensors(), {"step": "12", "größe": "λ\n\""}
    safetensors.torch.save_file(expected, source, metadata=metadata)
    printed = subprocess.run([tool, "copy", source, target], check=True, capture_output=True, text=True).stdout

    found = safetensors.torch.load_file(target)
    assert found.keys() == expected.keys(), found.keys()
    for name, tensor in expected.items():
        assert same(found[name], tensor), name
    with safetensors.safe_open(target, framework="numpy") as file:
        assert file.metadata() == metadata, file.metadata()
        assert numpy.array_equal(file.get_tensor("i64"), expected["i64"].numpy())
    assert printed.split()[0] == str(os.path.getsize(target)), printed
    assert struct.unpack("<Q", Path(target).read_bytes()[:8])[0] % 8 == 0

    # Without tensors and without metadata.
    safetensors.torch.save_file({}, source)
    subprocess.run([tool, "copy", source, target], check=True, capture_output=True)
    assert safetensors.torch.load_file(target) == {}


def pack(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def files():
    """Name -> (content, is it a valid file)."""
    four = b"\0" * 4
    valid = pack({"a": tensor()}, four)
    return {
        "valid": (valid, True),
        "padded": (pack(json.dumps({"a": tensor()}).encode() + b"   ", four), True),
        "zero size between": (pack({"a": tensor(), "b": tensor(shape=[0], offsets=(4, 4))}, four), True),
        "unsorted": (pack({"a": tensor(offsets=(4, 8)), "b": tensor()}, four * 2), True),
        "metadata": (pack({"__metadata__": {"k": "v"}, "a": tensor()}, four), True),
        "nothing": (b"", False),
        "short": (b"\0" * 7, False),
        "no header": (pack(b""), False),
        "header beyond file": (pack({"a": tensor()}, four, length=10_000), False),
        "huge header": (pack({"a": tensor()}, four, length=2**63 + 5), False),
        "leading space": (pack(b" " + json.dumps({"a": tensor()}).encode(), four), False),
        "not JSON": (pack(b"{\"a\": }"), False),
        "not UTF-8": (pack(b"{\"\xff\": 1}"), False),
        "list": (pack([]), False),
        "cut": (valid[:-1], False),
        "rest": (valid + b"\0", False),
        "hole": (pack({"a": tensor(offsets=(0, 4)), "b": tensor(offsets=(8, 12))}, four * 3), False),
        "hole in front": (pack({"a": tensor(offsets=(4, 8))}, four * 2), False),
        "overlap": (pack({"a": tensor(), "b": tensor()}, four), False),
        "partial overlap": (pack({"a": tensor(), "b": tensor(offsets=(2, 6))}, b"\0" * 6), False),
        "backwards": (pack({"a": tensor(shape=[0], offsets=(4, 0))}, four), False),
        "wrong size": (pack({"a": tensor(shape=[2])}, four), False),
        "overflow": (pack({"a": tensor(shape=[2**62, 2**62, 16])}, four), False),
        "overflow to fit": (pack({"a": tensor(shape=[2**32, 2**32], offsets=(0, 0))}), False),
        "negative size": (pack({"a": tensor(shape=[-1], offsets=(0, 0))}), False),
        "negative offset": (pack({"a": tensor(offsets=(-4, 0))}), False),
        "float size": (pack({"a": tensor(shape=[1.0])}, four), False),
        "huge float size": (pack(b'{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}}', four), False),
        "three offsets": (pack({"a": tensor(offsets=(0, 4, 4))}, four), False),
        "unknown type": (pack({"a": tensor(dtype="Q9")}, four), False),
        "no type": (pack({"a": {"shape": [1], "data_offsets": [0, 4]}}, four), False),
        "tensor is a number": (pack({"a": 1}), False),
        "metadata not text": (pack({"__metadata__": {"k": 1}, "a": tensor()}, four), False),
        "repeated tensor": (pack(b'{"a":%s,"a":%s}' % ((json.dumps(tensor()).encode(),) * 2), four), False),
        "repeated key": (pack(b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', four), False),
    }


# Forbidden by the format's description, but accepted by the package.
STRICTER_THAN_PACKAGE = {"leading space", "repeated tensor"}


def check_same_judgement(tool, folder):
    path, differences = os.path.join(folder, "file.safetensors"), []
    for name, (content, is_valid) in files().items():
        Path(path).write_bytes(content)
        try:
            safetensors.torch.load_file(path)
            python_accepts = True
        except Exception:  # of any type: the package refuses the file
            python_accepts = False
        run = subprocess.run([tool, "check", path], capture_output=True, text=True)
        if python_accepts != (is_valid or name in STRICTER_THAN_PACKAGE):
            differences.append(f"{name}: the package {'accepts' if python_accepts else 'refuses'} it")
        if run.returncode != (0 if is_valid else 3) or not is_valid and path not in run.stderr:
            differences.append(f"{name}: exit code {run.returncode}, {run.stderr}")
    assert not differences, "\n".join(differences)


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_both_ways(sys.argv[1], folder)
        check_same_judgement(sys.argv[1], folder)


main()
