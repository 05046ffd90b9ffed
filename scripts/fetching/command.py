"""Downloads a data set in its official form, checks it and writes it as sdp-train reads it.

    scripts/fetch_data NAME DEST [--from DIR] [--mirror URL]

NAME is cifar10, cifar100, svhn, svhn_extra, mnist, fashion_mnist, imagenet or fineweb. Archives are downloaded from their
authors' sites or taken from DIR; their size and SHA-256 must match the pinned values. An interrupted download resumes where it
stopped. Small images become arrays, train.safetensors and val.safetensors (docs/data.md). DIR may also have the files that were
unpacked from an archive. Complete parts of DEST are kept.

Exit status: 0 the data set is in DEST, 2 the arguments are wrong, 3 it could not be obtained (the message says what to do).
"""

import argparse
import pathlib
import shlex
import sys
from typing import BinaryIO

from fetching import imagenet
from fetching.archives import Archive, FetchError, Opened, downloaded, open_archive, open_in, problem_with, say
from fetching.images import origin_of, write_arrays
from fetching.sets import SETS

IMAGENET_HELP = """ImageNet (ILSVRC 2012) may only be downloaded with an account that accepts its terms:
  1. sign in at https://image-net.org/download-images.php and download into one folder DIR
     ILSVRC2012_img_train.tar (138 GB), ILSVRC2012_img_val.tar (6.3 GB), ILSVRC2012_devkit_t12.tar.gz (2.5 MB)
  2. scripts/fetch_data imagenet {dest} --from DIR
     which checks them and writes train/WNID/*.JPEG and val/WNID/*.JPEG (another 150 GB)."""

FINEWEB_HELP = """FineWeb is text, which sdp-train reads as tokens. This downloads the sample of 10 billion tokens as a
stream, tokenizes it as GPT-2 does and writes it in shards of 100 million tokens (20 GB, resumable with --resume):
  python3 -m pip install -r scripts/requirements-data.txt
  python3 scripts/prepare_tokens.py --dataset HuggingFaceFW/fineweb --subset sample-10BT --out {dest} --name fineweb"""


def fetch_images(name: str, dest: pathlib.Path, source: pathlib.Path | None, mirror: str | None) -> None:
    dest.mkdir(parents=True, exist_ok=True)
    wanted = []
    for file in SETS[name]:
        if origin_of(dest / file.name) == {archive.url: archive.sha256 for archive in file.archives}:
            say(f"{file.name}: already in {dest}")
        else:
            wanted.append(file)
    downloads: list[pathlib.Path] = []
    opened: dict[Archive, Opened] = {}
    for file in wanted:
        contents: dict[str, BinaryIO] = {}
        origin: dict[str, str] = {}
        for archive in file.archives:
            if archive not in opened and source is not None:
                opened[archive] = open_in(archive, source)
            elif archive not in opened:
                downloads.append(downloaded(archive, dest, mirror))
                opened[archive] = open_archive(archive, downloads[-1])
            contents |= opened[archive].files
            origin |= opened[archive].sha256
        for content in contents.values():
            content.seek(0)  # files of an archive may be read for several files of arrays
        images = file.read(contents)
        if len(images.labels) != file.count:
            raise FetchError(f"{', '.join(origin)}: {len(images.labels)} images, expected {file.count}. Get what is missing.")
        say(f"writing {dest / file.name}")
        write_arrays(dest / file.name, images, origin)
    for archive in opened.values():
        for content in archive.files.values():
            content.close()
    for path in downloads:
        path.unlink()
    say(f"{dest}: complete")


def fetch_imagenet(dest: pathlib.Path, source: pathlib.Path | None) -> None:
    advice = IMAGENET_HELP.format(dest=shlex.quote(str(dest)))
    if source is None:
        raise FetchError(advice)
    dest.mkdir(parents=True, exist_ok=True)
    paths = [source / archive.name for archive in imagenet.ARCHIVES]
    for path in paths:
        if not path.is_file():
            raise FetchError(f"{path} does not exist.\n{advice}")
    for archive, path in zip(imagenet.ARCHIVES, paths, strict=True):
        say(f"checking {path}")
        if problem := problem_with(archive, path):
            raise FetchError(f"{path}: {problem}. Download it again.")
    imagenet.unpack(*paths, dest)
    say(f"{dest}: complete")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/fetch_data", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", metavar="NAME", choices=[*SETS, "imagenet", "fineweb"])
    parser.add_argument("dest", metavar="DEST", type=pathlib.Path, help="folder for the data set")
    parser.add_argument("--from", dest="source", metavar="DIR", type=pathlib.Path, help="take the archives from DIR")
    parser.add_argument("--mirror", metavar="URL", help="download URL/FILE instead of the authors' addresses")
    options = parser.parse_args(arguments)
    try:
        if options.name == "fineweb":
            raise FetchError(FINEWEB_HELP.format(dest=shlex.quote(str(options.dest))))
        if options.name == "imagenet":
            fetch_imagenet(options.dest, options.source)
        else:
            fetch_images(options.name, options.dest, options.source, options.mirror)
    except (FetchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0
