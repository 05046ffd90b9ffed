"""`python -m sdp_lab COMMAND ...`: what `sdp-train COMMAND ...` starts."""

import importlib
import sys

from sdp_lab.trainer import LabError

COMMANDS = ("report", "sweep")


def main(command: str, arguments: list[str]) -> int:
    try:
        module = importlib.import_module(f"sdp_lab.{command}")
        return module.main(arguments)
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
    except BrokenPipeError:
        return 3


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"usage: python -m sdp_lab {{{','.join(COMMANDS)}}} ...")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
