"""The build of the hot paths that the tests run on: the source, or with `OTTLA_HOT_PATHS=compiled`
the compiled modules.
"""

import asyncio
import os
import tomllib
from enum import Enum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, Protocol

from typer.testing import CliRunner

from ottla_broker.hot_paths import SAMPLE, hot_paths_build
from ottla_operator.cli import app
from ottla_operator.cli.options import new_app

EXPECTED = os.environ.get("OTTLA_HOT_PATHS", "pure")
MODULES = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["ottla"]["compiled-modules"]


def test_tests_run_on_the_expected_build() -> None:
    assert hot_paths_build() == EXPECTED


def test_all_modules_are_of_one_build() -> None:
    assert SAMPLE in MODULES
    origins = {name: str(find_spec(name).origin) for name in MODULES}  # type: ignore[union-attr]
    assert {name for name, origin in origins.items() if origin.endswith(".py") == (EXPECTED == "compiled")} == set()


def test_version_names_the_build() -> None:
    command = new_app("", cls=app.LazyGroup)
    command.callback()(app._root)
    result = CliRunner().invoke(command, ["--version"])
    assert result.output.endswith(f" ({EXPECTED})\n"), result.output


def test_compiled_classes_have_only_bases_that_mypyc_knows() -> None:
    """mypyc takes any other base outside of the compiled modules for a class without fields. It
    would overwrite the fields of a base that is written in C, and the process would crash. mypyc
    leaves enums to Python.
    """
    known = {object, Exception, BaseException, tuple, Generic, Protocol, asyncio.BaseProtocol, asyncio.BufferedProtocol}
    classes = [
        cls
        for name in MODULES
        for cls in vars(import_module(name)).values()
        if isinstance(cls, type) and cls.__module__ == name and not issubclass(cls, Enum)
    ]
    assert classes
    foreign = {base for cls in classes for base in cls.__mro__ if base.__module__ not in MODULES}
    assert foreign - known == set()
