"""`.ci/compile`: what was compiled from the same sources is copied, and three results are kept."""

import os
import subprocess
from pathlib import Path

import pytest

COMPILE = Path(__file__).parents[3] / ".ci" / "compile"
# In place of Python. Its `setup.py` copies a file to the folder that the seventh argument names,
# and adds a line to the file `calls`.
PYTHON = """#!/bin/sh
[ "$1" = setup.py ] || exit 0
echo compiled >> calls
mkdir -p "$7/ottla_broker" "$7/ottla_spark"
cp broker-image/ottla_broker/a.py "$7/ottla_broker/a.so"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    package = tmp_path / "checkout" / "broker-image" / "ottla_broker"
    package.mkdir(parents=True)
    (package / "a.py").write_text("1")
    for name, content in (("setup.py", ""), ("pyproject.toml", "compiled-modules = [\n]\n"), ("python", PYTHON)):
        (tmp_path / "checkout" / name).write_text(content)
    (tmp_path / "checkout" / "python").chmod(0o755)
    return tmp_path / "checkout"


def compile_in(checkout: Path) -> tuple[str, int]:
    """The compiled module, and how often something was compiled."""
    environment = os.environ | {"XDG_CACHE_HOME": str(checkout.parent / "cache")}
    subprocess.run([COMPILE, checkout / "python", "build/compiled"], cwd=checkout, env=environment, check=True)
    module = checkout / "build" / "compiled" / "ottla_broker" / "a.so"
    return module.read_text(), len((checkout / "calls").read_text().splitlines())


def test_the_same_sources_are_compiled_once(checkout: Path) -> None:
    source = checkout / "broker-image" / "ottla_broker" / "a.py"
    assert compile_in(checkout) == ("1", 1)
    assert compile_in(checkout) == ("1", 1)
    source.write_text("2")
    assert compile_in(checkout) == ("2", 2)
    source.write_text("1")
    assert compile_in(checkout) == ("1", 2)
    (checkout / "pyproject.toml").write_text('compiled-modules = [\n    "a",\n]\n')
    assert compile_in(checkout) == ("1", 3)
    assert not (checkout / "build" / "compiled" / "ottla_spark").exists()


def test_the_results_that_were_used_last_are_kept(checkout: Path) -> None:
    cache = checkout.parent / "cache" / "ottla" / "compiled"
    for number in range(5):
        (checkout / "broker-image" / "ottla_broker" / "a.py").write_text(str(number))
        compile_in(checkout)
        for age, folder in enumerate(sorted(cache.iterdir(), key=lambda it: -it.stat().st_mtime), 1):
            os.utime(folder, (0, -age))
    assert sorted((it / "ottla_broker" / "a.so").read_text() for it in cache.iterdir()) == ["2", "3", "4"]
