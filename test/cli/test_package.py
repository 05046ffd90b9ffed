"""The wheel and the archive of scripts/package, made of this build and installed as their users do, without network."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = Path(sysconfig.get_paths()["purelib"])
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": "/nonexistent"}
SHORT = ["--nproc", "1", "--set", "train.max_steps=2", "--set", "eval.max_samples=16", "--set", "eval.recalibrate_batches=1"]


def run(*command, cwd, code=0):
    result = subprocess.run([str(word) for word in command], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout if code == 0 else result.stderr


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    if not Path(os.environ["SDP_TRAIN"]).resolve().is_relative_to(ROOT / "build") or "CMAKE_PREFIX_PATH" in os.environ:
        pytest.skip("scripts/package packs what is in build/, for pip's torch")
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run([ROOT / "scripts/package", "--built", folder], check=True, capture_output=True)
    return folder


def environment(packages, tmp_path, libraries=()):
    """A new virtual environment with the wheel; `libraries` are linked into it."""
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    pip = [sys.executable, "-m", "pip", "--python", tmp_path / "env/bin/python", "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", *packages.glob("*.whl"), cwd=tmp_path)
    site = tmp_path / "env" / SITE.relative_to(Path(sys.prefix))
    for library in libraries:
        (site / library.name).symlink_to(library)
    return tmp_path / "env", site


def test_what_is_in_the_wheel_and_in_the_archive(packages, tmp_path):
    """Nothing of this machine; the dependencies of set-up. Built on Debian 12, it runs on RHEL 9 and Ubuntu 22.04."""
    (wheel,), (archive,) = packages.glob("sdp_train-*.whl"), packages.glob("*.tar.gz")
    zipfile.ZipFile(wheel).extractall(tmp_path / "wheel")
    tarfile.open(archive).extractall(tmp_path / "archive", filter="data")
    programs = [path for path in tmp_path.rglob("*") if path.name == "sdp-train" and path.parent.name == "bin"]
    assert len(programs) == 2
    for program in programs:
        assert str(SITE) not in subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
    for launcher in [path for path in tmp_path.rglob("sdp-train-*") if path.is_file()]:
        assert sys.prefix not in launcher.read_text()
    (metadata,) = (tmp_path / "wheel").glob("*.dist-info/METADATA")
    needs, *pinned = (dict(re.findall(pattern, path.read_text(), re.MULTILINE)) for pattern, path in [
        (r"^Requires-Dist: ([\w-]+)[~=]=(.*)$", metadata),
        *((r"^([\w-]+)==(.*)$", ROOT / "scripts" / name) for name in ("requirements.txt", "requirements-lab.txt")),
    ])  # fmt: skip
    pinned = pinned[0] | pinned[1]
    assert needs.keys() == pinned.keys()
    assert all(pinned[name].startswith(version.removesuffix("*")) for name, version in needs.items())
    if tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))) <= (2, 36):
        assert int(re.search(r"manylinux_2_(\d+)_", wheel.name)[1]) <= 34


def as_installed(packages, tmp_path):
    """An environment with the wheels and all libraries, and a copy of what the wheel brings to work in."""
    everything = [path for path in SITE.iterdir() if path.name not in ("pip", "__pycache__")]
    env, _ = environment(packages, tmp_path, everything)
    return env, shutil.copytree(env / "share/sdp-train", env.parent / "work")


def test_a_wheel_trains_and_reports(packages, tmp_path):
    env, work = as_installed(packages, tmp_path)
    program = env / "bin/sdp-train"
    run(program, "--config", "configs/quickstart.yaml", *SHORT, cwd=work)
    assert "accuracy" in run(program, "report", "runs", cwd=work)
    assert "one_node.sbatch" in os.listdir(work / "scripts/slurm")
    assert run(env / "bin/python", "-c", "import sdp_lab; print(len(sdp_lab.load('runs')))", cwd=work) == "1\n"


NETWORK = """
import torch
import sdp_train

class Net(sdp_train.Network):
    def __init__(self):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 4, stride=4)
        self.blocks = torch.nn.ModuleList(torch.nn.Conv2d(8, 8, 3, padding=1) for _ in range(4))
        self.fc = torch.nn.Linear(8, 10)

    def branches(self):
        return list(self.blocks)

    def head(self, x):
        return self.fc(x.mean((2, 3)))

if __name__ == "__main__":
    sdp_train.train("net.yaml", Net, processes=2)
"""
EXPERIMENT = """
name: net
model: {name: own, num_classes: 10}
data: {name: cifar10, path: examples/data}
subnetwork: {workers: 4, coverage: 2/4}
train: {max_steps: 2}
"""


def test_wheels_train_a_network_in_python(packages, tmp_path):
    env, work = as_installed(packages, tmp_path)
    (work / "net.py").write_text(NETWORK)
    (work / "net.yaml").write_text(EXPERIMENT)
    run(env / "bin/python", "net.py", cwd=work)
    assert "accuracy" in run(env / "bin/sdp-train", "eval", "--run", "runs/net", "--network", "net.py:Net", cwd=work)


def test_libtorch_of_another_folder_of_the_same_python(packages, tmp_path):
    """As with a virtual environment that sees the system's packages."""
    env, site = environment(packages, tmp_path)
    (site / "others.pth").write_text(str(SITE))
    assert run(env / "bin/sdp-train", "--version", cwd=env).startswith("sdp-train ")


@pytest.mark.parametrize("has", ["no torch", "a torch without CUDA", "another torch"])
def test_what_it_looked_for(packages, tmp_path, has):
    torch = tmp_path / "others" / "torch"
    information = tmp_path / "others" / f"torch-{'2.11.0' if 'CUDA' in has else '2.12.0'}.dist-info"
    for folder in (torch / "lib", information):
        folder.mkdir(parents=True)
    (torch / "__init__.py").touch()
    (torch / "lib" / "libtorch.so").touch()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {information.stem.split('-')[1]}\n")
    env, _ = environment(packages, tmp_path, [] if has == "no torch" else [torch, information])
    error = run(env / "bin/sdp-train", "--version", cwd=env, code=2)
    assert "torch==2.11.*" in error and {"no torch": "bin/python", "a torch without CUDA": "libtorch_cuda.so"}.get(has, "2.12.0") in error


def test_the_archive_runs_beside_links(packages, tmp_path):
    (archive,) = packages.glob("*.tar.gz")
    tarfile.open(archive).extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    for name in ("torch", "nvidia"):
        (folder / name).symlink_to(SITE / name)
    assert run("bin/sdp-train", "--version", cwd=folder).startswith("sdp-train ")


@pytest.mark.parametrize(("words", "offered"), [
    (["re"], {"report"}), (["plan", "--me"], {"--measure", "--memory"}), (["--set", "subnetwork.co"], {"subnetwork.coverage=", "subnetwork.construction="})])
def test_completion(words, offered):
    script = (f"source {ROOT}/scripts/completion.bash; COMP_WORDS=({os.environ['SDP_TRAIN']} {' '.join(words)}); COMP_CWORD={len(words)}; "
              "_sdp_train; printf '%s\\n' \"${COMPREPLY[@]}\"")
    assert set(run("bash", "-c", script, cwd=ROOT).split()) == offered
