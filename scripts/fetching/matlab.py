"""MATLAB's MAT-files."""

from typing import Any, BinaryIO

import scipy.io

from fetching.archives import FetchError


def read_mat(file: BinaryIO, name: str) -> dict[str, Any]:
    """The variables by name."""
    try:
        return scipy.io.loadmat(file, squeeze_me=False)
    except Exception as error:  # of many types, if the file is damaged
        raise FetchError(f"{name} is no MAT-file that scipy reads: {error!r}. Get the file again.") from error
