"""The sdp-train binary, which holds the list of options: the lab asks it instead of having its own."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

FORMAT = 1  # the version of the contract in docs/runs.md


class LabError(Exception):
    """What the user can correct. `code` is the exit status: 2 usage, 3 data, as those of sdp-train."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


def refuse_newer(content: Any, source: Any) -> Any:
    if content.get("format", FORMAT) > FORMAT:
        raise LabError(f"{source}: written by a newer sdp-train (format {content['format']}, expected {FORMAT})", 3)
    return content


@functools.cache
def binary() -> Path:
    """SDP_TRAIN, which `sdp-train report` sets; otherwise that of the source tree, of this Python, or of the PATH."""
    folders = (Path(__file__).resolve().parents[2] / "build", Path(sys.executable).parent)
    near = next((folder / "sdp-train" for folder in folders if (folder / "sdp-train").exists()), None)
    found = os.environ.get("SDP_TRAIN") or near or shutil.which("sdp-train")
    if not found:
        raise LabError("sdp-train was not found. Build it, or set SDP_TRAIN to its path.")
    return Path(found)


def ask(*arguments: str, stdin: str | None = None) -> Any:
    """The JSON that `sdp-train ARGUMENTS` prints. Its errors become a LabError with its message and exit status."""
    result = subprocess.run([binary(), *arguments], input=stdin, capture_output=True, encoding="utf-8", errors="replace")
    if result.returncode != 0:
        raise LabError(result.stderr.strip().removeprefix("error: "), result.returncode)
    return refuse_newer(json.loads(result.stdout), binary())
