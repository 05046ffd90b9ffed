"""Packs a folder with only what a GPU machine needs, in the layout of the repository."""

import ast
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import tarfile

from gpuhour import learning, parity
from gpuhour.images import pack_images, write_noise_images, write_noise_tokens
from gpuhour.jobs import EARLIER, Context
from gpuhour.order import FIRST_TESTS, SLOW_TESTS

LIBRARIES = "numpy", "pytest", "safetensors", "torch", "torchvision", "transformers"  # that tests may need
OF_TESTS = "test/cli/prestarted.c", "docs/import_export.md"  # which harness.py builds, and test_evaluation.py runs
TRAVEL_LIMIT_BYTES = 64 << 20  # of the checkout and the pack


def copy_program(source: pathlib.Path, target: pathlib.Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)


def imported(file: pathlib.Path) -> set[str]:
    """The modules that a test imports, directly or by its neighbors."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""]
        found |= {name.partition(".")[0] for name in names}
    neighbors = [file.with_name(f"{name}.py") for name in found]
    return found.union(*(imported(neighbor) for neighbor in neighbors if neighbor.exists() and neighbor != file))


def pack_tests(home: pathlib.Path, scratch: pathlib.Path, target: pathlib.Path) -> int:
    """Packs the programs and Python files of the tests with the label `device`, and beside them tests.json, which says how
    to call them from a folder {home} with the program {program}. Returns the number of tests. Exits if order.py names
    another test."""
    listing = subprocess.run(["ctest", "--test-dir", home / "build", "--show-only=json-v1", "-L", "^device$"], check=True,
                             capture_output=True, text=True)
    tests = {}
    for test in json.loads(listing.stdout)["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test["properties"]}
        python = test["command"][0]
        is_python = pathlib.Path(python).name.startswith("python")
        needs = imported(pathlib.Path(test["command"][-1])).intersection(LIBRARIES) if is_python else ()
        parts = [*test["command"], *properties.get("ENVIRONMENT", [])]
        for part in parts:
            program = pathlib.Path(part.partition("=")[2] or part)
            if program.is_file() and program.is_relative_to(home / "build" / "test") and os.access(program, os.X_OK):
                copy_program(program, scratch / program.relative_to(home))

        def relocated(text):
            if is_python and text == python:
                return "{python}"
            return text.replace(str(home / "build" / "sdp-train"), "{program}").replace(str(home), "{home}")

        tests[test["name"]] = {"command": [relocated(part) for part in test["command"]],
                               "environment": [relocated(entry) for entry in properties.get("ENVIRONMENT", [])],
                               "needs": {library: importlib.metadata.version(library) for library in sorted(needs)}}
    if unknown := {*FIRST_TESTS, *SLOW_TESTS}.difference(tests):
        raise SystemExit(f"{home / 'build'} has no test {', '.join(sorted(unknown))} with the label device, which "
                         "scripts/gpuhour/order.py names. Correct the name there, or build all tests (scripts/test).")
    copy_program(home / "build" / "test" / "comm_helper", scratch / "build" / "test" / "comm_helper")  # test_comm starts it
    for file in [*(home / "test").rglob("*.py"), *(home / name for name in OF_TESTS)]:
        copy = scratch / file.relative_to(home)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    target.with_name("tests.json").write_text(json.dumps(tests, indent=1) + "\n")
    with tarfile.open(target, "w:xz") as archive:
        archive.add(scratch, ".")
    return len(tests)


def write_noise(folder: pathlib.Path) -> None:
    """Small data sets, the same bytes everywhere: images of noise, tokens of noise and a pattern."""
    write_noise_images(folder / "images", 1000)
    write_noise_tokens(folder / "tokens", 1 << 18, 512, noise_share=0.1)  # losses depend on the steps


def travel_bytes(home: pathlib.Path, folder: pathlib.Path) -> int:
    """Size of what goes to the GPU machine: the files of the checkout that git does not ignore, and the pack."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=home, check=True,
                            capture_output=True, text=True).stdout
    files = {home / name for name in listed.split("\0") if name} | set(folder.rglob("*"))
    return sum(file.lstat().st_size for file in files if file.is_file())


def check_travel(home: pathlib.Path, folder: pathlib.Path) -> None:
    size_bytes = travel_bytes(home, folder)
    told = f"{size_bytes / (1 << 20):.1f} MiB travel: the checkout without what git ignores, and {folder}"
    if size_bytes > TRAVEL_LIMIT_BYTES:
        shutil.rmtree(folder)
        raise SystemExit(f"{told}. At most {TRAVEL_LIMIT_BYTES >> 20} MiB may. Remove files, or pack without --cifar10 or with a "
                         "lower --quality.")
    print(told)


def pack(context: Context, folder: pathlib.Path, cifar10: pathlib.Path | None, quality: int) -> None:
    home = context.home
    if folder.exists():
        raise SystemExit(f"{folder} exists. Remove it, or name another folder.")
    folder.mkdir(parents=True)
    copy_program(context.binary, folder / "build" / "sdp-train")
    shutil.copytree(home / "configs", folder / "configs")
    (folder / "scripts").mkdir()
    for name, package in (("gpu_hour", "gpuhour"), ("bench", "benchmark")):
        shutil.copy2(home / "scripts" / name, folder / "scripts" / name)
        shutil.copytree(home / "scripts" / package, folder / "scripts" / package, ignore=shutil.ignore_patterns("__pycache__"))
    if (home / EARLIER).exists():
        (folder / EARLIER).parent.mkdir(parents=True)
        shutil.copy2(home / EARLIER, folder / EARLIER)
    write_noise(folder / "pack")
    (folder / "pack" / "learning.json").write_text(json.dumps(learning.points(home), indent=1) + "\n")
    tests = pack_tests(home, context.fresh("tests"), folder / "pack" / "tests.tar.xz")
    if cifar10:
        pack_images(cifar10, folder / "pack" / "cifar10.zip", quality)
    described = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=home, capture_output=True, text=True)
    (folder / "pack" / "commit.txt").write_text(described.stdout.strip() + "\n")
    here = Context(folder, context.state, "cpu", context.environment)
    here.log = context.log
    (folder / "pack" / "reference.json").write_text(json.dumps(parity.record(here), indent=1) + "\n")
    print(f"{folder}: {tests} tests")
    check_travel(home, folder)
