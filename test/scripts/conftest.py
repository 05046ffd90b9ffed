import contextlib
import importlib.machinery
import importlib.util
import io
import pathlib
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))


def load_script(name):
    """Loads a script of scripts/ as a module, with or without a suffix."""
    loader = importlib.machinery.SourceFileLoader(name.removesuffix(".py"), str(SCRIPTS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def call(main, *arguments, expect=0):
    """Runs a script's `main` in this process and returns its output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            status = main(list(map(str, arguments)))
        except SystemExit as exit_:
            status = exit_.code
    assert status == expect, output.getvalue()
    return output.getvalue()
