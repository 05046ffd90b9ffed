"""The lab beside sdp-train: reads runs, compares them and draws them.

import sdp_lab
runs = sdp_lab.load("runs")      # a data frame with a row per run
lines = sdp_lab.curves("runs")   # a row per line of the metrics
"""

from sdp_lab.frames import curves, load

__all__ = ["curves", "load"]
