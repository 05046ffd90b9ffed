"""Runs the tests that use SDP_TEST_DEVICE on the device. pack.py recorded how ctest calls them."""

import importlib.metadata
import importlib.util
import json
import pathlib
import tarfile

from gpuhour.jobs import Context, LeftOut, Row, judged, last_line


def folder_of(context: Context) -> pathlib.Path:
    return context.state / "suite"


def tests_of(context: Context) -> dict[str, dict]:
    return json.loads((context.home / "pack" / "tests.json").read_text())


def unpack(context: Context) -> None:
    if not (folder_of(context) / "complete").exists():
        with tarfile.open(context.home / "pack" / "tests.tar.xz") as archive:
            archive.extractall(folder_of(context), filter="data")
        (folder_of(context) / "complete").touch()


def command_of(context: Context, test: dict) -> tuple[list[str], dict[str, str]]:
    places = {"{home}": str(folder_of(context)), "{program}": str(context.binary), "{python}": context.environment["PYTHON"]}

    def placed(text: str) -> str:
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    environment = dict(entry.split("=", 1) for entry in map(placed, test["environment"]))
    return [placed(part) for part in test["command"]], environment


def major(version: str) -> str:
    return version.partition(".")[0]


def run_test(context: Context, name: str) -> list[Row]:
    test = tests_of(context)[name]
    what = f"{name} with SDP_TEST_DEVICE={context.device}"
    missing = [need for need in test["needs"] if importlib.util.find_spec(need) is None]
    if missing:
        raise LeftOut(f"this Python has no {', '.join(missing)}")
    for library, version in test["needs"].items():
        if major(have := importlib.metadata.version(library)) != major(version):
            raise LeftOut(f"written for {library} {version}; this Python has {have}")
    unpack(context)
    command, environment = command_of(context, test)
    try:
        text = context.run(command, env=environment | {"SDP_TEST_DEVICE": context.device})
    except RuntimeError as error:
        return [Row(what, str(error), "FAIL")]
    return [judged(what, last_line(text), True)]
