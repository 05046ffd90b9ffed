"""`python -m sdp_lab COMMAND ...`: what `sdp-train COMMAND ...` starts."""

import errno
import importlib
import sys

from sdp_lab.trainer import LabError


def main(command: str, arguments: list[str]) -> int:
    try:
        return importlib.import_module(f"sdp_lab.{command}").main(arguments)
    except ModuleNotFoundError as error:
        print(
            f"error: sdp-train {command}: {sys.executable} lacks the package {error.name}. Run scripts/setup, or install "
            "the packages of scripts/requirements-lab.txt there.",
            file=sys.stderr,
        )
        return 2
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        what = error.filename or "the output cannot be written"
        advice = " Free space there or choose another folder with --out." if error.errno == errno.ENOSPC else ""
        print(f"error: {what}: {error.strerror}.{advice}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
