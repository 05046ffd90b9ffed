"""The lab beside sdp-train: reads runs, compares them and draws them.

import sdp_lab
runs = sdp_lab.load("runs")      # a data frame with a row per run
lines = sdp_lab.curves("runs")   # a row per line of the metrics
"""

from typing import Any

__all__ = ["curves", "load"]


def __getattr__(name: str) -> Any:
    """pandas takes a second to start, and `sdp-train report` says which package is missing: imported on first use."""
    if name not in __all__:
        raise AttributeError(f"module sdp_lab has no attribute {name}")
    from sdp_lab import frames

    return getattr(frames, name)
