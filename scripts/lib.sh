# shellcheck shell=bash
# Shared by the scripts in this folder; source it, do not run it. Sets ROOT to the repository and changes to it.

set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

VENV=$ROOT/.venv

say() { printf '%s\n' "$*"; }

# die CODE MESSAGE...: 1 something failed, 2 the user has to supply something that the machine or the call lacks.
die() {
  local code=$1
  shift
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

# phase TITLE COMMAND...: runs the command in this shell and prints how long it took. A phase that fails ends the
# script.
phase() {
  local title=$1 start=$SECONDS
  shift
  say "== $title"
  "$@"
  say "== $title: $((SECONDS - start)) s"
}

# --- system packages ---------------------------------------------------------------------------------------

# package | probes that show that it is installed, from the package or elsewhere: a command, a header or a library. All
# probes must succeed; of names separated by |, one is enough.
# shellcheck disable=SC2034  # used by scripts/setup
BUILD_PACKAGES='
g++                 | command:g++
cmake               | command:cmake
ninja-build         | command:ninja
ccache              | command:ccache
python3-venv        | python
python3-dev         | header:python3*/Python.h
libgloo-dev         | header:gloo/algorithm.h
libyaml-cpp-dev     | header:yaml-cpp/yaml.h library:libyaml-cpp.a
libcli11-dev        | header:CLI/CLI.hpp
libspdlog-dev       | header:spdlog/spdlog.h
libfmt-dev          | header:fmt/format.h
nlohmann-json3-dev  | header:nlohmann/json.hpp
libeigen3-dev       | header:eigen3/Eigen/Eigenvalues|Eigen/Eigenvalues
libxxhash-dev       | header:xxhash.h library:libxxhash.a
libjpeg-dev         | header:jpeglib.h library:libjpeg.a
libpng-dev          | header:png.h library:libpng.a
libwebp-dev         | header:webp/decode.h library:libwebp.a
libarchive-dev      | header:archive.h library:libarchive.a
zlib1g-dev          | header:zlib.h library:libz.a
'
# shellcheck disable=SC2034
TEST_PACKAGES='
catch2              | header:catch2/catch.hpp|catch2/catch_all.hpp
clang-format        | command:clang-format
clang-tidy          | command:clang-tidy
'

# Folders that CMake searches, one per line.
prefixes() {
  tr ':;' '\n' <<<"${CMAKE_PREFIX_PATH:-}" | sed '/^$/d'
  printf '%s\n' /usr /usr/local
}

# exists_under SUBFOLDER NAME: whether it exists in one of the prefixes, or in the architecture's folder below it.
exists_under() {
  local prefix
  while read -r prefix; do
    compgen -G "$prefix/$1/$2" >/dev/null && return
    compgen -G "$prefix/$1/*-linux-gnu*/$2" >/dev/null && return
  done < <(prefixes)
  return 1
}

is_there() {
  local kind=${1%%:*} names=${1#*:} name
  for name in ${names//|/ }; do
    case $kind in
      command) command -v "$name" >/dev/null && return ;;
      header) exists_under include "$name" && return ;;
      library) exists_under lib "$name" && return ;;
      python) project_python >/dev/null && return ;;
    esac
  done
  return 1
}

# missing_packages TABLE...: names of the packages with a failing probe.
missing_packages() {
  local package probes probe
  while read -r package _ probes; do
    [[ -n $package ]] || continue
    for probe in $probes; do
      is_there "$probe" || { echo "$package" && break; }
    done
  done <<<"$*"
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  if [[ ${#missing[@]} -eq 0 ]]; then
    say "all system packages are installed"
    return
  fi
  say "missing: ${missing[*]}"
  command -v apt-get >/dev/null ||
    die 2 "this system has no apt-get. Install the equivalents of these Debian packages, then run this again: ${missing[*]}"
  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      as_root=(sudo)
    else
      die 2 "packages are missing, and neither root nor sudo is available. Ask an administrator to run
  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}
and then run this again."
    fi
  fi
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  mapfile -t missing < <(missing_packages "$@")
  [[ ${#missing[@]} -eq 0 ]] || die 2 "installed, but still not found: ${missing[*]}"
}

# --- Python and LibTorch ----------------------------------------------------------------------------------

# Prints the Python for the virtual environment: one with venv and of a version that LibTorch's wheels support.
# If PYTHON is set, it is the only candidate.
find_python() {
  local candidate candidates=(python3 /usr/bin/python3 python3.11 python3.12 python3.13 python3.14)
  [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' \
      2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

# Prints the folder of TorchConfig.cmake if CMAKE_PREFIX_PATH contains a LibTorch.
own_libtorch() {
  local prefix below
  while read -r prefix; do
    for below in . Torch share/cmake/Torch lib/cmake/Torch; do
      if [[ -e $prefix/$below/TorchConfig.cmake ]]; then
        (cd "$prefix/$below" && pwd)
        return
      fi
    done
  done < <(prefixes)
  return 1
}

# The Python that CMake and the tests use. With the user's own LibTorch: PYTHON, else that of
# LibTorch's environment, else python3. Otherwise: the virtual environment's.
project_python() {
  local torch_dir
  if torch_dir=$(own_libtorch); then
    local environment=${torch_dir%%/lib/python3*}/bin/python
    [[ -x $environment ]] || environment=python3
    command -v "${PYTHON:-$environment}"
  else
    find_python >/dev/null && echo "$VENV/bin/python"
  fi
}

# A virtual environment works only in its original place and with its original Python.
venv_is_sound() {
  grep -qF "$VENV" "$VENV/bin/activate" 2>/dev/null &&
    "$VENV/bin/python" -c 'import os, sysconfig; os.listdir(sysconfig.get_paths()["purelib"] + "/pip")' 2>/dev/null
}

# install_requirements FILE...: installs into the virtual environment, which is created if it is missing. The stamp's
# name is a hash of the files, so that nothing is done, and no network is needed, if the environment is complete.
install_requirements() {
  if [[ -e $VENV ]] && ! venv_is_sound; then
    say "$VENV was made elsewhere or for another Python: creating it again"
    rm -rf "$VENV"
  fi
  local python stamp
  stamp=$VENV/.stamp-$(cat "$@" | sha256sum | cut -c 1-16)
  if [[ -e $stamp ]]; then
    say "the virtual environment is complete"
    return
  fi
  if [[ ! -e $VENV ]]; then
    python=$(find_python) || die 2 "no Python 3.11 to 3.14 with the venv module was found; set PYTHON to one"
    say "creating $VENV with $python (with LibTorch and CUDA: about 5 GB)"
    "$python" -m venv "$VENV"
  fi
  say "installing $(basename -a "$@" | paste -sd ' ')"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "${@/#/--requirement=}"
  touch "$stamp"
}

# The user's own LibTorch comes with the user's own Python, which needs the tests' packages.
check_test_python() {
  local python missing
  python=$(project_python) || die 2 "the tests need Python; set PYTHON to one"
  missing=$("$python" - <<'END'
import importlib.util
names = ["torch", "torchvision", "transformers", "numpy", "scipy", "PIL", "safetensors", "tokenizers", "pyarrow", "tiktoken",
         "pytest", "tensorboard", "pandas", "matplotlib", "jinja2", "plotly", "rich", "yaml"]
print(" ".join(name for name in names if importlib.util.find_spec(name) is None))
END
  )
  [[ -z $missing ]] || die 2 "CMAKE_PREFIX_PATH contains a LibTorch, so the tests use the Python of its environment.
$python lacks: $missing. Install them there (versions: scripts/requirements-test.txt and -lab.txt), or set PYTHON to the
Python that has them, or unset CMAKE_PREFIX_PATH to let scripts/setup install everything."
}

# --- build ------------------------------------------------------------------------------------------------

# Number of compile jobs: one per core, if memory allows 2 GB for each.
build_jobs() {
  local cores memory_kib limit
  cores=$(nproc)
  memory_kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  if [[ $limit != max && $((limit / 1024)) -lt $memory_kib ]]; then memory_kib=$((limit / 1024)); fi
  local jobs=$((memory_kib / (2 * 1024 * 1024)))
  if [[ $jobs -gt $cores ]]; then jobs=$cores; fi
  if [[ $jobs -lt 1 ]]; then jobs=1; fi
  echo "$jobs"
}

# cached NAME: the value in the build folder's CMake cache; empty if there is none.
cached() { sed -n "s/^$1:[A-Z]*=//p" build/CMakeCache.txt 2>/dev/null || true; }

# configure [CMAKE ARGUMENT...]: a new build folder compiles folder by folder, as nothing is there that could be kept; an
# existing one stays as it is.
configure() {
  local torch_dir unity arguments=("-DPython3_EXECUTABLE=$(project_python)")
  unity=$(cached SDP_UNITY_BUILD)
  arguments+=("-DSDP_UNITY_BUILD=${unity:-ON}")
  if torch_dir=$(own_libtorch); then
    # CMake searches its own variable before the environment's.
    arguments+=("-DCMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH//:/;}")
  else
    arguments+=(--log-level=ERROR)  # the wheel's CMake files always print harmless warnings
    torch_dir=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch/share/cmake/Torch
  fi
  # A cache for another source tree or another LibTorch is unusable.
  if [[ -e build/CMakeCache.txt && ($(cached CMAKE_HOME_DIRECTORY) != "$ROOT" || $(cached Torch_DIR) != "$torch_dir") ]]; then
    say "the build folder was configured for another tree or LibTorch: configuring again"
    rm -rf build/CMakeCache.txt build/CMakeFiles
  fi
  cmake --preset release "${arguments[@]}" "$@" >/dev/null
  say "LibTorch: $(cached Torch_DIR)"
}

# build TARGET
build() {
  local jobs
  jobs=$(build_jobs)
  say "$jobs job(s)"
  cmake --build build --target "$1" --parallel "$jobs"
}
