"""`sdp-train draw DIR`: pictures of what `plan --out DIR` or `analyze --out DIR` wrote, beside it."""

import argparse
from pathlib import Path

from sdp_lab import analysis, plan
from sdp_lab.trainer import LabError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser("sdp-train draw", description="Draws what plan --out or analyze --out wrote.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    folder = parser.parse_args(arguments).folder
    sources = {"plan.json": plan.figures, "similarity.csv": analysis.figures}
    drawn = [name for file, figures in sources.items() if (folder / file).exists() for name in figures(folder)]
    if not drawn:
        raise LabError(f"{folder}: expected {' or '.join(sources)}; found neither. plan --out and analyze --out write them.")
    print(f"wrote {', '.join(drawn)} to {folder}, as PDF and SVG")
    return 0
