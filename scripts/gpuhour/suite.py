"""Runs the tests that use SDP_TEST_DEVICE on the device. pack.py recorded how ctest calls them."""

import importlib.util
import json
import pathlib
import tarfile

from gpuhour.jobs import Context, Job, Row, judged, last_line


def folder_of(context: Context) -> pathlib.Path:
    return context.state / "suite"


def tests_of(context: Context) -> list[dict]:
    """Unpacks the tests at the first call."""
    listing = folder_of(context) / "tests.json"
    if not listing.exists():
        with tarfile.open(context.home / "pack" / "tests.tar.xz") as archive:
            archive.extractall(folder_of(context), filter="data")
    return json.loads(listing.read_text())


def command_of(context: Context, test: dict) -> tuple[list[str], dict[str, str]]:
    places = {"{home}": str(folder_of(context)), "{program}": str(context.binary), "{python}": context.environment["PYTHON"]}

    def placed(text: str) -> str:
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    environment = dict(entry.split("=", 1) for entry in map(placed, test["environment"]))
    return [placed(part) for part in test["command"]], environment


def run_test(context: Context, test: dict) -> list[Row]:
    what = f"{test['name']} with SDP_TEST_DEVICE={context.device}"
    missing = [name for name in test["needs"] if importlib.util.find_spec(name) is None]
    if missing:
        return [Row(what, f"not run: this Python has no {', '.join(missing)}")]
    command, environment = command_of(context, test)
    try:
        text = context.run(command, env=environment | {"SDP_TEST_DEVICE": context.device})
    except RuntimeError as error:
        return [Row(what, str(error), "FAIL")]
    return [judged(what, last_line(text), True)]


def jobs(device: str, tests: list[dict]) -> list[Job]:
    return [Job("suite", test["name"], 20 if device == "cuda" else 60, 240 if device == "cuda" else 600,
                lambda context, test=test: run_test(context, test)) for test in tests]
