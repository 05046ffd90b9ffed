# shellcheck shell=bash
# Shared by the scripts of this folder; source it, do not run it. Sets ROOT and changes to it.

set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

VENV=$ROOT/.venv

say() { printf '%s\n' "$*"; }

# die CODE MESSAGE...: 1 something failed, 2 the machine or the call lacks something that the user has to supply.
die() {
  local code=$1
  shift
  printf 'error: %s\n' "$*" >&2
  exit "$code"
}

# phase TITLE COMMAND...: runs the command and says how long it took. The command runs in this shell; a phase
# that fails ends the script.
phase() {
  local title=$1 start=$SECONDS
  shift
  say "== $title"
  "$@"
  say "== $title: $((SECONDS - start)) s"
}

# --- packages of the system -------------------------------------------------------------------------------

# package | what shows that it, or the same thing from elsewhere, is there: a command, a header or a library; several are
# all needed, of names with | between them one is enough.
# shellcheck disable=SC2034  # used by scripts/setup
BUILD_PACKAGES='
g++                 | command:g++
cmake               | command:cmake
ninja-build         | command:ninja
ccache              | command:ccache
python3-venv        | python
libgloo-dev         | header:gloo/algorithm.h
libyaml-cpp-dev     | header:yaml-cpp/yaml.h library:libyaml-cpp.a
libcli11-dev        | header:CLI/CLI.hpp
libspdlog-dev       | header:spdlog/spdlog.h
libfmt-dev          | header:fmt/format.h
nlohmann-json3-dev  | header:nlohmann/json.hpp
libeigen3-dev       | header:eigen3/Eigen/Eigenvalues|Eigen/Eigenvalues
libxxhash-dev       | header:xxhash.h library:libxxhash.a
libjpeg-dev         | header:jpeglib.h library:libjpeg.a
libarchive-dev      | header:archive.h library:libarchive.a
zlib1g-dev          | header:zlib.h library:libz.a
'
# shellcheck disable=SC2034
TEST_PACKAGES='
catch2              | header:catch2/catch.hpp|catch2/catch_all.hpp
clang-format        | command:clang-format
clang-tidy          | command:clang-tidy
'

# Folders under which CMake will look, one a line.
prefixes() {
  tr ':;' '\n' <<<"${CMAKE_PREFIX_PATH:-}" | sed '/^$/d'
  printf '%s\n' /usr /usr/local
}

# exists_under SUBFOLDER NAME: in one of the prefixes, or in the folder of this machine's architecture below it.
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

# missing_packages TABLE...: names of the packages of which something is missing.
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
    say "everything that is needed of the system is there"
    return
  fi
  say "missing: ${missing[*]}"
  command -v apt-get >/dev/null ||
    die 2 "this system has no apt-get. Install what these Debian packages hold, then run this again: ${missing[*]}"
  local as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
      as_root=(sudo)
    else
      die 2 "packages are missing and neither root nor sudo is available. Have an administrator run
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

# Prints the Python to make the virtual environment with: one that has venv and that LibTorch's wheels are made
# for. PYTHON, where it is set, is the only candidate.
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

# Prints the LibTorch that CMAKE_PREFIX_PATH names, if it names one: the folder of TorchConfig.cmake.
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

# The Python that CMake and the tests use. With a LibTorch of the user's: PYTHON, else that of the environment the
# LibTorch is in, else python3. Without: the virtual environment's.
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

# A virtual environment works only where it was made and with the Python it was made for.
venv_is_sound() {
  grep -qF "$VENV" "$VENV/bin/activate" 2>/dev/null &&
    "$VENV/bin/python" -c 'import os, sysconfig; os.listdir(sysconfig.get_paths()["purelib"] + "/pip")' 2>/dev/null
}

# install_requirements FILE...: into the virtual environment, which is made where it is missing. The stamp holds
# the content of the files, so that an environment that is complete is left alone, without a network.
install_requirements() {
  if [[ -e $VENV ]] && ! venv_is_sound; then
    say "$VENV was made elsewhere or for another Python: it is made again"
    rm -rf "$VENV"
  fi
  local python stamp
  stamp=$VENV/.stamp-$(cat "$@" | sha256sum | cut -c 1-16)
  if [[ -e $stamp ]]; then
    say "the virtual environment is complete"
    return
  fi
  if [[ ! -e $VENV ]]; then
    python=$(find_python) || die 2 "no Python 3.11 to 3.14 with its venv module was found; PYTHON can name one"
    say "making $VENV with $python (with LibTorch and CUDA: about 5 GB)"
    "$python" -m venv "$VENV"
  fi
  say "installing $(basename -a "$@" | paste -sd ' ')"
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check "${@/#/--requirement=}"
  touch "$stamp"
}

# A LibTorch of the user's comes with a Python of the user's, of which the tests need packages.
check_test_python() {
  local python missing
  python=$(project_python) || die 2 "the tests need Python; PYTHON can name one"
  missing=$("$python" - <<'END'
import importlib.util
names = ["torch", "torchvision", "transformers", "numpy", "scipy", "PIL", "safetensors", "tokenizers", "pyarrow", "tiktoken",
         "pytest", "tensorboard"]
print(" ".join(name for name in names if importlib.util.find_spec(name) is None))
END
  )
  [[ -z $missing ]] || die 2 "CMAKE_PREFIX_PATH names a LibTorch, so the tests use the Python of that environment.
$python lacks: $missing. Install them there (versions: scripts/requirements-test.txt), or set PYTHON to the
Python that has them, or unset CMAKE_PREFIX_PATH to let scripts/setup install everything."
}

# --- build ------------------------------------------------------------------------------------------------

# Compile jobs: the cores, as far as memory allows 2 GB for each.
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

# cached NAME: the value in the build folder's CMake cache; empty where there is none.
cached() { sed -n "s/^$1:[A-Z]*=//p" build/CMakeCache.txt 2>/dev/null || true; }

# configure [CMAKE ARGUMENT...]
configure() {
  local torch_dir arguments=("-DPython3_EXECUTABLE=$(project_python)")
  if torch_dir=$(own_libtorch); then
    # CMake looks into its own variable before the environment's.
    arguments+=("-DCMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH//:/;}")
  else
    arguments+=(--log-level=ERROR)  # the wheel's CMake files always warn of the same trifles
    torch_dir=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')/torch/share/cmake/Torch
  fi
  # What CMake remembers of another tree or another LibTorch does not fit this one.
  if [[ -e build/CMakeCache.txt && ($(cached CMAKE_HOME_DIRECTORY) != "$ROOT" || $(cached Torch_DIR) != "$torch_dir") ]]; then
    say "the build folder was configured for something else: configuring anew"
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
