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
COLD_PATHS = Path("build/cold_paths.h")
ERROR_PATHS_ARE_COLD = """
#define PY_SSIZE_T_CLEAN
#include <Python.h>
void CPy_AddTraceback(const char *, const char *, int, PyObject *) __attribute__((cold));
void CPy_TypeErrorTraceback(const char *, const char *, int, PyObject *, const char *, PyObject *)
    __attribute__((cold));
static void CPy_DecRef(PyObject *) __attribute__((cold, unused));
"""
"""Functions that mypyc's code calls where something fails. What only leads to them, a quarter of
the code, is put apart: it is not loaded into memory with the rest.
"""
COMPILER_OPTIONS = [
    *("-include", str(COLD_PATHS), "-freorder-blocks-and-partition", "-freorder-functions"),
    # Calls inside the library need no table of symbols then, and nobody else calls into it.
    "-fvisibility=hidden",
    *("-ffunction-sections", "-fdata-sections", "-fno-asynchronous-unwind-tables"),
]
LINKER_OPTIONS = [
    *("-Wl,--gc-sections", "-Wl,--strip-all"),
    # Each part of a library that is apart takes pages of memory: the table of relocations is
    # compressed, and code, constants and tables are one part.
    *("-Wl,-z,pack-relative-relocs", "-Wl,-z,noseparate-code"),
]


def compile_hot_paths(modules: list[str]) -> list[Any]:
    """The extensions for setuptools; writes C below build/. Exits with mypy's errors if there are
    any.
    """
    from mypyc.build import mypycify  # a build of pure Python does not need it

    os.environ["MYPYPATH"] = SOURCES
    # Of libraries that are not installed where the wheel is built, types are unknown.
    options = ["--config-file=", "--ignore-missing-imports", "--explicit-package-bases"]
    paths = [f"{SOURCES}/{name.replace('.', '/')}.py" for name in modules]
    # Level 2 takes twice as long to compile, and gains little.
    extensions = list(mypycify([*options, *paths], opt_level="1", debug_level="0", group_name="ottla_broker"))
    COLD_PATHS.parent.mkdir(exist_ok=True)
    COLD_PATHS.write_text(ERROR_PATHS_ARE_COLD)
    for extension in extensions:
        # A new list: mypyc gives one to all extensions, and each would add its options to that.
        extension.extra_compile_args = [*extension.extra_compile_args, *COMPILER_OPTIONS]
        extension.extra_link_args += LINKER_OPTIONS
    return extensions


project = tomllib.loads(Path("pyproject.toml").read_text())
if os.environ.get("OTTLA_COMPILED") != "1":
    setup()
elif find_spec("mypyc") is None:
    # pip installs `setup_requires` and runs this file again. mypyc takes types from the libraries.
    setup(setup_requires=project["project"]["optional-dependencies"]["compile"] + project["project"]["dependencies"])
elif {"build", "bdist_wheel"} & set(sys.argv):
    setup(ext_modules=compile_hot_paths(project["tool"]["ottla"]["compiled-modules"]))
else:
    setup()  # asked for the distribution's metadata
