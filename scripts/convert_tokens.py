#!/usr/bin/env python3
"""Makes token shards (docs/data.md) of files of bare tokens, as other programs write them:

  NAME.bin                nanoGPT: tokens of 16 bits, or of 32, without a header
  NAME.bin and NAME.idx   Megatron-LM: the .idx says the type of the numbers
  NAME.npy                numpy: one-dimensional integers

A name without train, val or test in it gets _train. Needs no package. Exit codes: 0, 2 usage, 3 input.
"""

import argparse
import ast
import dataclasses
import os
import pathlib
import sys
from array import array
from collections.abc import Iterator

from text_documents import InputError
from token_shards import FORMATS, HEADER_BYTES, UsageError, header_words

CHUNK_TOKENS = 1 << 22
SPLITS = ("train", "val", "test")
TYPE_OF_DTYPE = {"u1": "B", "i1": "b", "u2": "H", "i2": "h", "u4": "I", "i4": "i", "u8": "Q", "i8": "q"}
TYPE_OF_MEGATRON = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}  # megatron/core/datasets/indexed_dataset.py, DType
MEGATRON_MAGIC = b"MMIDIDX\x00\x00"


@dataclasses.dataclass
class Bare:
    """A file of tokens: numbers of array's `typecode` from `offset` to the end."""

    path: pathlib.Path
    typecode: str
    offset: int = 0

    def tokens(self) -> int:
        size, rest = divmod(self.path.stat().st_size - self.offset, array(self.typecode).itemsize)
        if rest:
            raise InputError(f"{self.path}: {rest} bytes too many for numbers of {8 * array(self.typecode).itemsize} bits")
        return size


def open_npy(path: pathlib.Path) -> Bare:
    with open(path, "rb") as file:
        head = file.read(12)
        if head[:6] != b"\x93NUMPY":
            raise InputError(f"{path}: not a file of numpy.save")
        begin, length = (10, head[8:10]) if head[6] == 1 else (12, head[8:12])
        end = begin + int.from_bytes(length, "little")
        file.seek(begin)
        described = ast.literal_eval(file.read(end - begin).decode("latin1"))
    dtype, shape = described["descr"], described["shape"]
    if not isinstance(dtype, str) or dtype[0] not in "<|" or dtype[1:] not in TYPE_OF_DTYPE or len(shape) != 1:
        raise InputError(f"{path}: {dtype} of shape {shape}, expected one-dimensional little-endian integers")
    return Bare(path, TYPE_OF_DTYPE[dtype[1:]], end)


def open_megatron(path: pathlib.Path, index: pathlib.Path) -> Bare:
    with open(index, "rb") as file:
        head = file.read(18)
    if head[:9] != MEGATRON_MAGIC or head[17] not in TYPE_OF_MEGATRON:
        raise InputError(f"{index}: not an index of Megatron-LM of integers")
    return Bare(path, TYPE_OF_MEGATRON[head[17]])


def open_raw(path: pathlib.Path, bits: int | None) -> Bare | None:
    """None for a file that is a shard already."""
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    if int.from_bytes(head[:4], "little") in {magic for magic, _ in FORMATS.values()}:
        return None
    if bits is None:  # in numbers of 32 bits, every second half is small: vocabularies are below 2^20
        halves = array("H", head[: len(head) // 4 * 4])
        bits = 32 if halves and max(halves[1::2]) < 16 else 16
    return Bare(path, "H" if bits == 16 else "I")


def bare_files(inputs: list[pathlib.Path], bits: int | None) -> list[Bare]:
    files: list[Bare] = []
    for given in inputs:
        inside = sorted(path for path in given.iterdir() if path.is_file()) if given.is_dir() else [given]
        for path in inside:
            index = path.with_suffix(".idx")
            if path.suffix == ".npy":
                files.append(open_npy(path))
            elif path.suffix == ".bin" and (raw := open_megatron(path, index) if index.exists() else open_raw(path, bits)):
                files.append(raw)
    if not files:
        raise InputError(f"{', '.join(map(str, inputs))}: no .npy, and no .bin that is not a shard already")
    return files


def chunks(bare: Bare) -> Iterator[array]:
    with open(bare.path, "rb") as file:
        file.seek(bare.offset)
        while data := file.read(CHUNK_TOKENS * array(bare.typecode).itemsize):
            numbers = array(bare.typecode, data)
            if sys.byteorder == "big":  # all these files are little-endian
                numbers.byteswap()
            yield numbers


def largest_token(bare: Bare) -> int:
    largest, at = 0, 0
    for numbers in chunks(bare):
        if (smallest := min(numbers)) < 0:
            note = ", which marks labels that a loss ignores" if smallest == -100 else ""
            place = at + numbers.index(smallest)
            raise InputError(f"{bare.path}: {smallest} at position {place} is not a token{note}. Write the tokens without it.")
        largest, at = max(largest, max(numbers)), at + len(numbers)
    return largest


def write_shard(bare: Bare, path: pathlib.Path, token_bytes: int) -> None:
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        file.write(header_words(token_bytes, bare.tokens()).ljust(HEADER_BYTES, b"\0"))
        for numbers in chunks(bare):
            tokens = array("H" if token_bytes == 2 else "I", numbers)
            if sys.byteorder == "big":
                tokens.byteswap()
            file.write(tokens.tobytes())
    os.replace(part, path)


def convert(options: argparse.Namespace) -> None:
    files = bare_files(options.inputs, options.bits)
    empty = [bare.path for bare in files if not bare.tokens()]
    if empty:
        raise InputError(f"{empty[0]}: no tokens")
    # All shards of a data set have tokens of the same size.
    largest = max(map(largest_token, files))
    token_bytes = 2 if largest < 1 << 16 else 4
    if largest >= 1 << 32:
        raise InputError(f"token {largest} has more than 32 bits")
    options.out.mkdir(parents=True, exist_ok=True)
    for bare in files:
        stem = bare.path.stem if any(split in bare.path.stem for split in SPLITS) else bare.path.stem + "_train"
        out = options.out / f"{stem}.bin"
        if out.exists():
            raise UsageError(f"--out: {out} exists. Name another folder, or remove it.")
        write_shard(bare, out, token_bytes)
        read_as = f"{8 * array(bare.typecode).itemsize} bits"
        print(f"{out}: {bare.tokens()} tokens of {8 * token_bytes} bits, read from {bare.path} as numbers of {read_as}")
    print(f"the largest token is {largest}: model.vocab_size of {largest + 1} or more, data.path {options.out}")
    if not any("val" in bare.path.stem or "test" in bare.path.stem for bare in files):
        print("none of the names has val or test: data.validation_share: 0.05 holds out a part of training for evaluation")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="INPUT", type=pathlib.Path, help="files, or folders with them")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, required=True, help="folder for the shards")
    parser.add_argument("--bits", type=int, choices=[16, 32], help="of the numbers in .bin files without .idx (recognized)")
    options = parser.parse_args(arguments)
    try:
        convert(options)
    except (UsageError, InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
