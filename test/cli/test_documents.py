"""README, docs/ and the other pages: links lead somewhere, code blocks run, and quoted plans are what the program prints.

The blocks of a page are run in order in a small checkout, where the names that stand for something of the reader's
(X.yaml, DIR, my_images) exist. build/sdp-train is the program with fewer and smaller steps. A command that cannot run
here says in its comment what it needs. Pages of docs/results are records: their commands name the commit and the device.
The sweeps of configs/paper are planned by test_configs.py.
"""

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import harness

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "configs/paper/README.md", ROOT / "examples/data/README.md"])
LANGUAGES = {"sh", "python", "yaml", "json", ""}
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# The tests are a part of what these do, or they build the program anew.
SET_UP = ("scripts/quickstart", "scripts/test", "scripts/setup", "scripts/package", "scripts/check_style", "cmake", "ctest")
NEEDS = re.compile(r"#.*\bneeds\b")


def name_of(page) -> str:
    return str(page.relative_to(ROOT))


def blocks(page, *languages) -> list:
    """(language, text) of the fenced blocks in one of the languages, in order."""
    found = [(language, text) for _, language, text in FENCE.findall(page.read_text())]
    return [block for block in found if block[0] in languages]


def anchors(page) -> set:
    """Of the headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text())
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ +(.+)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists() and (not anchor or anchor in anchors(target)), link


def test_named_files_exist():
    file = r"(?<![\w/])(?:configs|scripts|examples|bench|docs)/[\w/.-]*\.(?:yaml|py|sh|cpp|md|sbatch)\b"
    for page in PAGES:
        for path in re.findall(file, page.read_text()) if page.stem != "CHANGELOG" else []:
            stands_for_names = re.search(r"[A-Z]{4}", path) and "README" not in path
            assert stands_for_names or (ROOT / path).exists(), (page, path)


def test_readme_is_three_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_every_page_of_docs_is_linked():
    """From the README or a page that it leads to."""
    seen, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        seen.add(page)
        for link in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text()):
            target = (page.parent / link).resolve()
            if target not in seen and target.exists():
                queue.append(target)
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.stem not in ("report", "table")} <= seen


def runnable(block) -> str:
    """The block's commands that can run here."""
    lines = block.replace("\\\n", " ").splitlines()
    return "\n".join(line for line in lines if not NEEDS.search(line) and not line.startswith(SET_UP))


# In place of build/sdp-train. A run that is started again under the same name begins anew.
SHORT = """#!/usr/bin/env bash
arguments=("$@")
case $1 in --* | import) [[ " $* " == *" --resume "* ]] || rm -rf runs/x ;; esac
case $1 in
  --*)
    [[ " $* " == *" --nproc "* ]] || arguments+=(--nproc 1)
    arguments+=(--set train.max_steps=2 --set train.batch_size_per_worker=1 --set train.precision=fp32
                --set eval.max_samples=4 --set eval.recalibrate_batches=1 --set eval.branch_scale=none) ;;
  sweep) [[ $3 != configs/paper/* ]] || exec test -f "$3"  # test_configs.py plans these
         arguments+=(--dry-run) ;;
  analyze) arguments+=(--set train.batch_size_per_worker=1) ;;
esac
exec PROGRAM "${arguments[@]}"
"""


def write_images(folder):
    pixels = np.random.default_rng(1).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    for folder_of_class in (folder / split / name for split in ("train", "val") for name in ("cat", "dog")):
        folder_of_class.mkdir(parents=True)
        for number in range(4):
            Image.fromarray(pixels).save(folder_of_class / f"{number}.jpg")


def write_cifar100(folder):
    names = (ROOT / "test/data/cifar100_classes.txt").read_text().split()
    for name in ("train", "val"):
        images, labels = np.random.default_rng(2).integers(0, 256, (40, 3, 32, 32), dtype=np.uint8), np.arange(40)
        harness.write_arrays(folder / f"{name}.safetensors", images, labels, names)


def shell(checkout, script):
    env = {"OMP_NUM_THREADS": "1", "SDP_TRAIN": str(harness.BINARY)}
    result = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=checkout, env=harness.environment(env),
                            capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, f"{script}\n{result.stdout}\n{result.stderr}"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The folders that pages name, data to train on, weights and tables of analyze in DIR, and finished runs."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("configs", "docs", "examples", "python", "scripts"):
        (folder / name).symlink_to(ROOT / name)
    short = SHORT.replace("PROGRAM", str(Path(harness.BINARY).resolve()))
    python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    for path, text in ((folder / "build/sdp-train", short), (folder / ".venv/bin/python", python)):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    harness.write_cifar10(folder / "data" / "cifar10")
    write_cifar100(folder / "data" / "cifar100")
    write_images(folder / "my_images")
    train = {"max_steps": 2, "batch_size_per_worker": 1, "precision": "fp32"}
    x = harness.write_config(folder, "x", Path("data/cifar10"), train=train, output={"dir": "runs"})
    x.rename(folder / "X.yaml")
    shell(folder, f"""
        {sys.executable} scripts/prepare_tokens.py docs/*.md --tokenizer bytes --val-tokens 8192 --out data/tokens
        build/sdp-train --config X.yaml
        build/sdp-train export --run runs/x --out DIR/model.safetensors""")
    for file in (ROOT / "docs/results/figure2").glob("*.csv"):
        shutil.copy(file, folder / "DIR")
    committed = tmp_path_factory.mktemp("committed")
    with zipfile.ZipFile(ROOT / "docs/results/evidence/lr.zip") as archive:
        archive.extractall(committed)
    (folder / "runs/demo").mkdir()
    for name, run in {"a": "DDP,lr=0.2", "b": "B-SDP,lr=0.2", "demo/c": "DDP,lr=0.1", "demo/d": "B-SDP,lr=0.1"}.items():
        (committed / f"method={run}").rename(folder / "runs" / name)
    return folder


ELSEWHERE = {"results", "paper"}
RUN = [page for page in PAGES if blocks(page, "sh", "python") and not ELSEWHERE & set(page.relative_to(ROOT).parts)]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_code_blocks(page, checkout, tmp_path):
    shutil.copytree(checkout, tmp_path, symlinks=True, dirs_exist_ok=True)
    for language, text in blocks(page, "sh", "python", "yaml"):
        if language == "sh":
            shell(tmp_path, runnable(text))
        elif name := re.match(r"# ([\w.]+\.(?:yaml|py))\n", text):
            (tmp_path / name[1]).write_text(text)
        elif language == "python" and not NEEDS.search(text):  # test_evaluation.py runs the others
            libraries = ("json", "safetensors.torch", "torch", "torchvision", "transformers")
            program = "".join(f"import {name}\n" for name in libraries if f"{name}." in text) + text
            shell(tmp_path, f"PYTHONPATH=python {sys.executable} -c {shlex.quote(program)}")


def test_yaml_blocks_have_keys_that_exist():
    schema = json.loads(harness.run("spec", "--schema").stdout)["properties"]
    for page in PAGES:
        assert {language for _, language, _ in FENCE.findall(page.read_text())} <= LANGUAGES, page
        for _, text in blocks(page, "yaml"):
            for section, values in yaml.safe_load(text).items():
                assert section in schema and (not isinstance(values, dict) or values.keys() <= schema[section]["properties"].keys())


def test_quoted_plans():
    quoted = [text for page in PAGES for _, text in blocks(page, "") if text.startswith("$ build/sdp-train plan")]
    assert quoted
    for text in quoted:
        command, output = text.split("\n", 1)
        arguments = [str(ROOT / word) if word.startswith("configs/") else word for word in command.split()[2:]]
        assert harness.run(*arguments).stdout == output


STATEMENTS = [page for page in PAGES if page.stem != "CHANGELOG" and "results" not in page.parts]  # the others are records


def test_options_page_is_made_from_the_schema():
    made = subprocess.check_output([sys.executable, ROOT / "scripts/option_table"], text=True)  # of SDP_TRAIN
    assert (ROOT / "docs/options.md").read_text() == made, "run scripts/option_table > docs/options.md"


def test_defaults():
    """`key: value`, the default, and `key` (number), as in docs/options.md."""
    defaults = dict(re.findall(r"^\| `(\S+)` \| (.+?) \|", (ROOT / "docs/options.md").read_text(), re.MULTILINE))
    for page in STATEMENTS:
        text = " ".join(page.read_text().split())
        quoted = re.findall(r"`([\w.]+): ([^`]+)`,? \(?the default\b", text) + re.findall(r"`(\w+\.\w+)` \((\d+)[;)]", text)
        for key, value in quoted:
            assert f"`{value}`" in defaults.get(key, ""), f"{page}: {key}: {value}, found {defaults.get(key)}"


def test_exit_codes():
    """The table has the codes of ExitCode and the words of --help; other pages name no other codes."""
    table = dict(re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "docs/commands.md").read_text(), re.MULTILINE))
    told = dict(re.findall(r"(\d+) ([^\d]+?)(?=,\s+\d|\.$)", harness.run("--help").stdout.partition("Exit codes: ")[2]))
    assert table.keys() == told.keys() == set(re.findall(r"^  k\w+ = (\d+)", (ROOT / "lib/spec/error.h").read_text(), re.MULTILINE))
    assert all(set(re.findall(r"\w+", words)) <= set(re.findall(r"\w+", table[code])) for code, words in told.items())
    failed = re.search(r"Exit code 0: [^;]+; (\d+): a check failed", harness.run("doctor", "--help").stdout)[1]
    assert "`doctor`" in table[failed]
    for page in STATEMENTS:
        codes = re.findall(r"\b(?:exit code|exits with|ends? with)(?: exit code)?\s(\d+)\b", page.read_text())
        assert set(codes) <= {*table, "127"}, page  # 127: the loader's


OPTION = r"(?<![\w-])--[a-z][a-z0-9-]+"
FOREIGN = set("""--help --version --account --array --build --chdir --gpus-per-node --logdir --no-python --nodes --nproc-per-node
                 --ntasks-per-node --partition --rdzv-endpoint --signal --target""".split())


def test_options_of_commands():
    """The table of commands has all options of each command; other pages name only options that exist."""
    table = {}
    for use in re.findall(r"^\| `sdp-train (.+?)` \|", (ROOT / "docs/commands.md").read_text(), re.MULTILINE):
        table.setdefault(re.match(r"(?:[a-z]+ ?)*", use)[0].strip(), set()).update(re.findall(OPTION, use))
    for command, named in table.items():
        options = re.findall(rf"^ +(?:-\w, ?)?({OPTION})", harness.run(*command.split(), "--help").stdout, re.MULTILINE)
        assert named == set(options) - {"--help", "--version"}, command
    scripts = [path.read_text() for pattern in ("scripts/**/*", "bench/*.py", "python/**/*.py") for path in ROOT.glob(pattern)
               if path.is_file() and path.suffix in ("", ".py") and path.stem != "option_table"]
    known = FOREIGN.union(*table.values(), *(re.findall(OPTION, text) for text in scripts))
    for page in STATEMENTS:
        assert page.stem == "options" or set(re.findall(OPTION, page.read_text())) <= known, page


def test_versions():
    for pattern, file, defined in ((r"sdp-train[- ](\d[\d.]*\d)|^version: (\S+)", "CMakeLists.txt", r"project\(sdp-train VERSION (\S+)"),
                                   (r"(?:LibTorch|PyTorch) (\d[\d.]*\d)", "scripts/requirements.txt", r"torch==(\S+)"),
                                   (r"CUDA (\d[\d.]*\d)", "scripts/requirements.txt", r"cuda-toolkit\S*==(\S+)"),
                                   (r"format (?:than )?\(?version (\d+)", "lib/run/manifest.cpp", r"kManifestVersion = (\d+)"),
                                   (r"Python (3\.\d+ to 3\.\d+)", "scripts/lib.sh", r"no Python (3\.\d+ to 3\.\d+)")):
        expected = re.search(defined, (ROOT / file).read_text())[1]
        for page in [*STATEMENTS, ROOT / "CITATION.cff"]:
            for found in re.finditer(pattern, page.read_text(), re.MULTILINE):
                assert f"{expected}.".startswith(f"{found[found.lastindex]}."), f"{page}: {found[0]}, expected {expected}"


# Columns of the evidence pages' tables: the column of a report's table.csv, a factor, and decimal places.
MEASURES = {"accuracy": ("accuracy", 100, 2), "uncorrected": ("accuracy_uncorrected", 100, 2), "steps": ("steps", 1, 0),
            "single subnetworks, mean": ("subnetwork_accuracy_mean", 100, 2), "loss": ("loss_nats", 1, 3),
            "uncorrected loss": ("loss_uncorrected_nats", 1, 3), "perplexity": ("perplexity", 1, 2)}


def committed_values(rows, key, factor, digits) -> set:
    """As the pages write them: the mean, with the standard deviation if there are several runs."""
    values = {""}
    for row in rows:
        if row.get(key):
            number, deviation = (f"{factor * float(row[name] or 0):.{digits}f}" for name in (key, f"{key}_std"))
            values.add(number if key == "steps" or row["runs"] == "1" else f"{number} ± {deviation}")
    return values


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/results/evidence/*.md")), ids=name_of)
def test_tables_of_evidence(page):
    """Tables with a column of uncorrected results quote the committed table.csv of the page's reports."""
    folders = sorted({page.parent / name for name in re.findall(r"report_\w+", page.read_text())})
    rows = [row for folder in folders if folder.exists() for row in csv.DictReader((folder / "table.csv").open())]
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(), re.MULTILINE):
        titles, _, *lines = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines())
        for line in lines if rows and any("uncorrected" in title for title in titles) else []:
            for title, cell in zip(titles, line, strict=True):
                if title in MEASURES and cell != "not run":
                    assert cell.removesuffix(" %").replace(",", "") in committed_values(rows, *MEASURES[title]), line
