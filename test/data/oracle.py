"""Reads, orders, augments and mixes the example data independently and compares the result with lib/data's.

    oracle.py DUMP_DATA EXAMPLE_DATA

Readers: tarfile and Pillow; of arrays, test/scripts/test_fetch_data.py. Order: Philox4x32-10 and the Feistel network
in plain Python. Augmentation and mixing: torchvision. Tokens: written, cut into samples and scanned with numpy.
"""
import io
import math
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
from unittest import mock

import numpy as np
import torch
import torchvision.transforms.functional as transforms
from PIL import Image
from torchvision.transforms import v2

SHUFFLE, CROP, FLIP, MIX = 0, 1, 2, 3
MASK32, MASK64 = 2**32 - 1, 2**64 - 1


def dump(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE).stdout


def read_with_pillow(folder, split):
    """Labels, images [N, 3, 32, 32] and the JPEG files of the shards of `split`."""
    labels, images, files = [], [], []
    for shard in sorted(folder.glob(f"{split}-*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                files.append(tar.extractfile(member).read())
                labels.append(int(member.name.split("/")[0]))
                images.append(np.asarray(Image.open(io.BytesIO(files[-1])).convert("RGB")).transpose(2, 0, 1))
    return np.array(labels), np.stack(images), files


def write_shards(pattern, samples, per_shard):
    """JPEG files with their labels in .cls members, as tarfile's pax format writes them; some names are long."""
    for shard, first in enumerate(range(0, len(samples), per_shard)):
        with tarfile.open(pattern.format(shard), "w", format=tarfile.PAX_FORMAT) as tar:
            for i, (file, label) in enumerate(samples[first : first + per_shard]):
                key = f"{'long' * 60 + '/' if i % 3 == 0 else ''}{i:06d}"
                for extension, data in (("cls", str(label).encode()), ("jpg", file)):
                    member = tarfile.TarInfo(f"{key}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def records_of(blob):
    records = np.frombuffer(blob, np.uint8).reshape(-1, 3073)
    return records[:, 0], records[:, 1:].reshape(-1, 3, 32, 32)


def check_example_data(program, folder):
    """Shards with labels in folders, and the same images in shards with labels in .cls."""
    for split, per_class in (("train", 500), ("test", 100)):
        labels, images, files = read_with_pillow(folder, split)
        blob = dump(program, folder, "pixels", split, "cifar10")
        got_labels, got_images = records_of(blob)
        assert np.array_equal(got_labels, labels), split
        assert np.bincount(labels).tolist() == [per_class] * 10, split
        assert np.abs(got_images.astype(int) - images).max() <= 1, split
        with tempfile.TemporaryDirectory() as name:
            write_shards(f"{name}/{split}-{{:06d}}.tar", list(zip(files, labels)), 400)
            assert dump(program, name, "pixels", split, "cifar10") == blob, split


def philox(counter, key):
    for i in range(10):
        a, b, c, d = counter
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        key0, key1 = (key[0] + i * 0x9E3779B9) & MASK32, (key[1] + i * 0xBB67AE85) & MASK32
        counter = [(right >> 32) ^ b ^ key0, right & MASK32, (left >> 32) ^ d ^ key1, left & MASK32]
    return counter


def numbers(seed, purpose, stream):
    block = 0
    while True:
        words = philox([block, purpose, stream & MASK32, stream >> 32], [seed & MASK32, seed >> 32])
        yield words[0] | words[1] << 32
        yield words[2] | words[3] << 32
        block += 1


def below(source, n):
    while True:
        product = next(source) * n
        if product & MASK64 >= 2**64 % n:
            return product >> 64


def scrambled(bits):
    """SplitMix64's finalizer."""
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & MASK64
    return bits ^ (bits >> 31)


def permutation(size, seed, epoch):
    """An 8-round Feistel network over the smallest power of 4 that holds the set; a result outside goes through again."""
    source = numbers(seed, SHUFFLE, epoch)
    keys = [next(source) for _ in range(8)]
    half = 1
    while 4**half < size:
        half += 1
    order = []
    for place in range(size):
        while True:
            left, right = divmod(place, 2**half)
            for key in keys:
                left, right = right, left ^ scrambled(right + key & MASK64) % 2**half
            place = left * 2**half + right
            if place < size:
                break
        order.append(place)
    return order


def augmented(image, seed, position, steps):
    image = torch.from_numpy(image)
    if "crop" in steps:
        source = numbers(seed, CROP, position)
        top, left = below(source, 9), below(source, 9)
        image = transforms.crop(transforms.pad(image, 4), top, left, 32, 32)
    if "flip" in steps and below(numbers(seed, FLIP, position), 2):
        image = transforms.hflip(image)
    image = transforms.convert_image_dtype(image, torch.float32)
    return transforms.normalize(image, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)).numpy()


def uniform(source):
    return (next(source) >> 11) * 2.0**-53


def log_gamma_variate(source, shape):
    """Marsaglia and Tsang (2000)."""
    if shape < 1:
        return log_gamma_variate(source, shape + 1) + math.log(1 - uniform(source)) / shape
    d = shape - 1 / 3
    while True:
        radius = math.sqrt(-2 * math.log(1 - uniform(source)))
        x = radius * math.cos(2 * math.pi * uniform(source))
        v = (1 + x / math.sqrt(9 * d)) ** 3
        if v <= 0:
            continue
        if math.log(1 - uniform(source)) < x * x / 2 + d - d * v + d * math.log(v):
            return math.log(d * v)


def mixed(images, labels, seed, position, mixup_alpha, cutmix_alpha):
    """Images and soft labels of torchvision's MixUp or CutMix, with lib/data's random choices."""
    source = numbers(seed, MIX, position)
    use_mixup = below(source, 2) == 0
    if not (mixup_alpha and cutmix_alpha):
        use_mixup = bool(mixup_alpha)
    alpha = mixup_alpha if use_mixup else cutmix_alpha
    log_x, log_y = log_gamma_variate(source, alpha), log_gamma_variate(source, alpha)
    transform = (v2.MixUp if use_mixup else v2.CutMix)(alpha=alpha, num_classes=10)
    transform._dist = mock.Mock()
    transform._dist.sample.return_value = 1 / (1 + math.exp(log_y - log_x))
    with mock.patch("torch.randint", lambda n, size: torch.tensor([below(source, n)])):
        images, soft = transform(torch.from_numpy(images), torch.from_numpy(labels))
    return images.numpy(), soft.numpy(), use_mixup


def check_batches(program, folder):
    """The geometry of dump_data: 4 workers, 2 replicas, 3 micro-batches of 16, steps 11..14 of 384 samples.

    Position 5000, the start of the second epoch, lies in step 13.
    """
    seed, batch_size = 2**40 + 5, 16
    labels, images = records_of(dump(program, folder, "pixels", "train", "cifar10"))
    order = permutation(len(labels), seed, 0) + permutation(len(labels), seed, 1)
    cases = [((0, 0), steps.split()) for steps in ("", "crop", "flip", "flip crop")]
    cases += [(alphas, ["crop", "flip"]) for alphas in ((0.2, 0), (0, 1), (0.8, 0.5))]
    for alphas, steps in cases:
        fields = [("samples", np.int64, batch_size), ("labels", np.int64, batch_size)]
        fields += [("mixed_labels", np.int64, batch_size)] if any(alphas) else []
        fields += [("mix", np.float64), ("images", np.float32, (batch_size, 3, 32, 32))]
        batches = iter(np.frombuffer(dump(program, folder, "batches", seed, *alphas, *steps), np.dtype(fields)))
        mixups, cutmixes = 0, 0
        for step in range(11, 15):
            for micro_batch in range(3):
                for worker, replica in ((1, 0), (3, 1)):
                    first = ((step * 6 + replica * 3 + micro_batch) * 4 + worker) * batch_size
                    positions = range(first, first + batch_size)
                    samples = [order[position] for position in positions]
                    expected_labels = labels[samples].astype(np.int64)
                    expected = np.stack([augmented(images[order[p]].copy(), seed, p, steps) for p in positions])
                    batch = next(batches)
                    assert batch["samples"].tolist() == samples, (step, micro_batch, worker)
                    assert batch["labels"].tolist() == expected_labels.tolist()
                    if not any(alphas):
                        assert batch["mix"] == 1 and np.array_equal(batch["images"], expected), steps
                        continue
                    expected, soft, use_mixup = mixed(expected, expected_labels, seed, first, *alphas)
                    one_hot, mix = np.eye(10), batch["mix"]
                    ours = mix * one_hot[expected_labels] + (1 - mix) * one_hot[batch["mixed_labels"]]
                    assert np.allclose(ours, soft, atol=1e-6)
                    assert np.allclose(batch["images"], expected, rtol=0, atol=2e-6 if use_mixup else 0)
                    mixups, cutmixes = mixups + use_mixup, cutmixes + (not use_mixup)
        assert next(batches, None) is None
        assert (mixups > 0, cutmixes > 0) == (alphas[0] > 0, alphas[1] > 0)


def write_tokens(path, tokens):
    """As llm.c's write_datafile writes them for gpt-2 (uint16) and llama-3 (uint32)."""
    header = np.zeros(256, np.int32)
    header[:3] = *{2: (20240520, 1), 4: (20240801, 7)}[tokens.itemsize], len(tokens)
    path.write_bytes(header.tobytes() + tokens.tobytes())


def windows(tokens, length):
    """Samples of length + 1 tokens; each begins with the last token of the one before."""
    if len(tokens) <= length:
        return np.empty(0, np.int64)
    return np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::length].astype(np.int64).ravel()


def check_tokens(program, _):
    """Samples do not cross shards. A scan finds extremes and tokens beyond the vocabulary."""
    random, length, vocab_size = np.random.default_rng(0), 64, 50257
    for dtype in (np.uint16, np.uint32):
        with tempfile.TemporaryDirectory() as name:
            expected, shards, problems = {"train": [], "test": [], "a": [], "b": []}, [], []
            for kinds, file, size in (
                ("train a", "fineweb_train_000001.bin", 1_200_000), ("train b", "fineweb_train_000002.bin", 64),
                ("train b", "fineweb_train_000003.bin", 10 * length + 1), ("train b", "fineweb_train_000004.bin", 0),
                ("test", "fineweb_val_000000.bin", 777),
            ):
                tokens = random.integers(3, np.iinfo(dtype).max, size, dtype, endpoint=True)
                write_tokens(pathlib.Path(name, file), tokens)
                for kind in kinds.split():
                    expected[kind].append(windows(tokens, length))
                beyond = np.flatnonzero(tokens >= vocab_size)
                extremes = f"{tokens.min()} {tokens.max()}" if size else "-1 -1"
                if "train" in kinds:
                    shards.append(f"{file} {8 * tokens.itemsize} {size} {extremes} {len(beyond)}")
                if "train" in kinds and size:
                    problems.append(f"{file}: {len(beyond)} of {size} tokens .* position {beyond[0]} ")
            for split, kind, patterns in (
                ("train", "train", ()), ("test", "test", ()), ("train", "a", ("fine*1.bin", "*00000[2-4].bin")),
                ("test", "b", ("fine*1.bin", "*00000[2-4].bin")),
            ):
                got = np.frombuffer(dump(program, name, "tokens", split, length, *patterns), np.int64)
                assert np.array_equal(got, np.concatenate(expected[kind])), (dtype, split, patterns)
            scanned = dump(program, name, "scan", "train", vocab_size).decode().splitlines()
            assert scanned[: len(shards)] == shards and len(scanned) == len(shards) + len(problems)
            for line, problem in zip(scanned[len(shards) :], problems):
                assert re.search(problem, line), (line, problem)


def main():
    torch.set_num_threads(1)
    for check in (check_example_data, check_batches, check_tokens):
        check(sys.argv[1], pathlib.Path(sys.argv[2]))
        print(f"{check.__name__}: ok")


if __name__ == "__main__":
    main()
