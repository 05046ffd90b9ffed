"""The data sets of small images: their official archives, and the files of arrays that are made of them."""

import dataclasses
from collections.abc import Callable
from functools import partial

from fetching.archives import Archive
from fetching.images import Files, Images, read_cifar, read_mnist, read_svhn

CIFAR10_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
DIGITS = [str(digit) for digit in range(10)]

# Sizes and SHA-256: TensorFlow Datasets (tensorflow_datasets/url_checksums: cifar10.txt, cifar100.txt, svhn_cropped.txt,
# mnist.txt, fashion_mnist.txt), with which torchvision's prototype data sets agree. The authors' own pages and
# torchvision.datasets have MD5 sums of the same files.
CIFAR10 = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    170052171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    "cifar-10-batches-bin",
    (*CIFAR10_BATCHES, "test_batch.bin", "batches.meta.txt"),
)
CIFAR100 = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    168513733,
    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    "cifar-100-binary",
    ("train.bin", "test.bin", "fine_label_names.txt"),
)
# The server has only http://; the pinned hashes protect the content.
SVHN_TRAIN = Archive(
    "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
    182040794,
    "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
)
SVHN_TEST = Archive(
    "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
    64275384,
    "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
)
SVHN_EXTRA = Archive(
    "http://ufldl.stanford.edu/housenumbers/extra_32x32.mat",
    1329278602,
    "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
)


def idx_archives(site: str, *pinned: tuple[int, str]) -> list[Archive]:
    """Images and labels to train on, then those to test with. `pinned`: size and SHA-256 of each."""
    names = [f"{split}-{kind}-ubyte.gz" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    return [Archive(f"{site}/{name}", *pin) for name, pin in zip(names, pinned, strict=True)]


# MNIST's own page has no files any more; these are TensorFlow's copies. Fashion-MNIST's server has only http://.
MNIST = idx_archives(
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    (9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    (28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    (1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    (4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)
FASHION_MNIST = idx_archives(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    (26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    (29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    (4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    (5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
)


@dataclasses.dataclass(frozen=True)
class ArrayFile:
    """A file of docs/data.md, "Small images"."""

    name: str
    count: int  # of images
    archives: list[Archive]
    read: Callable[[Files], Images]


def mnist(archives: list[Archive], class_names: list[str]) -> list[ArrayFile]:
    return [
        ArrayFile("train.safetensors", 60_000, archives[:2], partial(read_mnist, prefix="train", class_names=class_names)),
        ArrayFile("val.safetensors", 10_000, archives[2:], partial(read_mnist, prefix="t10k", class_names=class_names)),
    ]


def cifar(
    archive: Archive, train: tuple[str, ...], test: str, classes: tuple[int, ...], names: str
) -> list[ArrayFile]:
    return [
        ArrayFile(file, count, [archive], partial(read_cifar, batches=batches, classes=classes, names=names))
        for file, count, batches in (("train.safetensors", 50_000, train), ("val.safetensors", 10_000, (test,)))
    ]


SVHN_FILES = [
    ArrayFile(file, count, [archive], partial(read_svhn, name=archive.name, class_names=DIGITS))
    for file, count, archive in (
        ("train.safetensors", 73_257, SVHN_TRAIN),
        ("val.safetensors", 26_032, SVHN_TEST),
        ("extra.safetensors", 531_131, SVHN_EXTRA),
    )
]
SETS = {
    "cifar10": cifar(CIFAR10, CIFAR10_BATCHES, "test_batch.bin", (10,), "batches.meta.txt"),
    "cifar100": cifar(CIFAR100, ("train.bin",), "test.bin", (20, 100), "fine_label_names.txt"),
    "svhn": SVHN_FILES[:2],
    "svhn_extra": SVHN_FILES,
    "mnist": mnist(MNIST, DIGITS),
    "fashion_mnist": mnist(FASHION_MNIST, FASHION),
}
