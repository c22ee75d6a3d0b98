"""Tests of other files on a broker with compiled hot paths (docs/compiled.md). `make
compiled-tests` runs more of them.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ottla_broker.hot_paths import hot_paths_build
from tests.brokers import BrokerProcess
from tests.jars import skip_or_fail_in_ci

ROOT = Path(__file__).parents[2]
COMPILED = "build/compiled"
TESTS = (
    "tests/unit/test_hot_paths.py",
    "tests/unit/server/test_produce_turn.py",
    "tests/unit/server/test_group_turn.py",
    "tests/unit/wire/test_framing.py",
    "tests/unit/wire/test_produce_template.py",
    "tests/unit/api/test_fetch.py",
    "tests/clients/test_compiled.py::test_broker_logs_its_build",
    "tests/clients/test_confluent.py",
)
WITHIN_S = 600


def test_broker_logs_its_build(broker_kind: str, broker: BrokerProcess) -> None:
    if broker_kind != "ottla":
        pytest.skip("Apache Kafka has no compiled build")
    first_line, _, _ = (broker.folder / "broker.log").read_text().partition("\n")
    assert first_line.endswith(f"the broker's hot paths are {hot_paths_build()}")


@pytest.mark.slow
@pytest.mark.timeout(2 * WITHIN_S)
@pytest.mark.skipif(hot_paths_build() == "compiled", reason="these tests run on the compiled broker already")
def test_compiled_broker_passes_the_same_tests(broker_kind: str) -> None:
    if broker_kind != "ottla":
        pytest.skip("Apache Kafka is not compiled")
    if shutil.which("cc") is None or not Path(sysconfig.get_path("include"), "Python.h").exists():
        skip_or_fail_in_ci("a C compiler or Python's header files are missing (Debian: gcc libc6-dev python3-dev)")
    run("make", "compiled", f"VENV={sys.prefix}")
    run(sys.executable, "-m", "pytest", "-o", f"pythonpath={COMPILED} operator spark-app .", *TESTS)


def run(*command: str) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"OTTLA_HOT_PATHS": "compiled"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
