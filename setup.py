"""Builds the distribution. With `OTTLA_COMPILED=1` in the environment, mypyc compiles the broker's
hot paths and the wheel is for this platform (docs/compiled.md). Otherwise it is pure Python.
"""

import os
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import setup

SOURCES = "broker-image"


def compile_hot_paths(modules: list[str]) -> list[Any]:
    """The extensions for setuptools; writes C below build/. Exits with mypy's errors if there are
    any.
    """
    from mypyc.build import mypycify  # a build of pure Python does not need it

    os.environ["MYPYPATH"] = SOURCES
    # Of libraries that are not installed where the wheel is built, types are unknown.
    options = ["--config-file=", "--ignore-missing-imports", "--explicit-package-bases"]
    # Level 2 takes twice as long to compile, and gains little.
    paths = [f"{SOURCES}/{name.replace('.', '/')}.py" for name in modules]
    return list(mypycify([*options, *paths], opt_level="1", debug_level="0", group_name="ottla_broker"))


project = tomllib.loads(Path("pyproject.toml").read_text())
if os.environ.get("OTTLA_COMPILED") != "1":
    setup()
elif find_spec("mypyc") is None:
    # pip installs them for the build, and runs this file again. The broker's libraries have types.
    setup(setup_requires=project["project"]["optional-dependencies"]["compile"] + project["project"]["dependencies"])
elif {"build", "bdist_wheel"} & set(sys.argv):
    setup(ext_modules=compile_hot_paths(project["tool"]["ottla"]["compiled-modules"]))
else:
    setup()  # asked for the distribution's metadata
