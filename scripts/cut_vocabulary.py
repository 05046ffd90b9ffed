#!/usr/bin/env python3
"""Renumbers token shards to a smaller vocabulary: the most frequent tokens keep separate ids, all others share one.

    cut_vocabulary.py SRC DST --keep 8191

SRC contains *train*.bin and *val*.bin, written by scripts/prepare_tokens.py or llm.c. DST gets files of the same names,
with 16 bits per token. Token ids in DST are ranks by frequency in the training shards, 0 the most frequent (ties in
the order of their ids in SRC); id KEEP stands for every other token, so that the vocabulary has KEEP + 1. DST/vocabulary.json
lists the ids in SRC by rank.

For small experiments: a head over 50,257 tokens costs more than the rest of a small model. Losses are comparable only
between runs with the same vocabulary.

Exit status: 0 everything was written, 2 the arguments are wrong, 3 a file cannot be read.
"""

import argparse
import array
import collections
import json
import pathlib
import sys

from token_shards import FORMATS, HEADER_BYTES, header_words

MOST_KEPT = (1 << 16) - 1


class InputError(Exception):
    pass


def read_tokens(path):
    content = path.read_bytes()
    header = array.array("i", content[:HEADER_BYTES])
    codes = {FORMATS[2]: "H", FORMATS[4]: "I"}
    if len(content) < HEADER_BYTES or tuple(header[:2]) not in codes:
        raise InputError(f"{path}: not a token shard (unknown magic number or version)")
    tokens = array.array(codes[tuple(header[:2])], content[HEADER_BYTES:])
    if len(tokens) != header[2]:
        raise InputError(f"{path}: has {len(tokens)} tokens, but its header states {header[2]}")
    return tokens


def write_tokens(path, tokens):
    path.write_bytes(header_words(tokens.itemsize, len(tokens)).ljust(HEADER_BYTES, b"\0") + tokens.tobytes())


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", type=pathlib.Path)
    parser.add_argument("dst", type=pathlib.Path)
    parser.add_argument("--keep", type=int, required=True, help=f"tokens that keep an id of their own, 1 to {MOST_KEPT}")
    options = parser.parse_args(arguments)
    if not 1 <= options.keep <= MOST_KEPT:
        parser.error(f"--keep: found {options.keep}, expected 1 to {MOST_KEPT}")
    options.shards = {kind: sorted(options.src.glob(f"*{kind}*.bin")) for kind in ("train", "val")}
    if not options.shards["train"]:
        parser.error(f"{options.src}: has no *train*.bin; scripts/prepare_tokens.py writes them")
    if options.dst.resolve() == options.src.resolve():
        parser.error("DST must differ from SRC, whose files would be overwritten")
    return options


def main(arguments):
    options = parse(arguments)
    counts = collections.Counter()
    try:
        for path in options.shards["train"]:
            counts.update(read_tokens(path))
        kept = sorted(counts, key=lambda token: (-counts[token], token))[: options.keep]
        rank = {token: i for i, token in enumerate(kept)}
        options.dst.mkdir(parents=True, exist_ok=True)
        for path in options.shards["train"] + options.shards["val"]:
            tokens = array.array("H", (rank.get(token, options.keep) for token in read_tokens(path)))
            write_tokens(options.dst / path.name, tokens)
            print(f"{path.name}: {len(tokens)} tokens, {tokens.count(options.keep) / max(1, len(tokens)):.2%} of them with id {options.keep}")
    except (InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    (options.dst / "vocabulary.json").write_text(json.dumps(kept) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
