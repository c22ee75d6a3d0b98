"""A broker that has started has imported what it needs, and nothing that only few brokers need:
each module takes memory, and processor time of the start.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla_broker
from tests.brokers import run_ottla_broker

SOURCES = Path(__file__).parents[2] / "broker-image"
NOT_IMPORTED = [
    "cramjam",  # compression of records: 1.7 MiB
    "hashlib",  # OpenSSL's hashes, which logins need: 0.8 MiB with hmac and secrets
    "importlib.metadata",  # and with it email and zipfile: 2 MiB
    "ottla_broker.mirroring.mirror_manager",
    "ottla_broker.mirroring.synchronizer",
    "ottla_broker.mirroring.source_fetcher",
    "ottla_broker.wire.client",
    "shutil",  # and with it the libraries of bz2 and lzma: 0.5 MiB
    "tempfile",
]
MESSAGES = {"broker_heartbeat", "broker_registration", "request_header", "response_header", "voters_record"}
"""Messages of Kafka's protocol that a start imports. A version of one takes 2 ms and 0.1 MiB."""


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules that a broker has imported when it is ready."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # prints each imported module
        with run_ottla_broker() as broker:
            log = broker.log_tail(characters=1_000_000)
    return set(re.findall(r"^import time:.*\| +(\S+)$", log, re.MULTILINE))


def test_a_started_broker_has_imported_only_what_it_needs(imported: set[str]) -> None:
    assert "ottla_broker.mirroring.lazy_mirrors" in imported
    assert sorted(imported & set(NOT_IMPORTED)) == []
    assert {found[1] for name in imported if (found := re.fullmatch(r"kio\.schema\.(\w+)\.v\d+", name))} == MESSAGES


def test_immutable_values_of_a_start_are_structs(imported: set[str]) -> None:
    """A frozen dataclass takes 0.4 ms and 13 KiB, a msgspec.Struct 0.01 ms and 3 KiB. A Struct
    cannot hide a field from its representation or from comparisons.
    """
    compiled = {"ottla_broker.coordination.effects.EmptyGroupWrite"}  # a compiled class must not inherit from Struct
    assert {name for module in imported for name in frozen_dataclasses(module)} <= compiled


def frozen_dataclasses(module: str) -> Iterator[str]:
    path = SOURCES / f"{module.replace('.', '/')}.py"
    text = path.read_text() if path.exists() else ""
    for name, body in re.findall(r"@dataclass\(frozen=True, slots=True\)\nclass (\w+):\n((?: .*\n|\n)*)", text):
        if not re.search(r"(repr|compare)=False", body):
            yield f"{module}.{name}"


def test_no_garbage_collection_runs_while_modules_are_imported() -> None:
    program = (
        "import gc; runs = []; gc.callbacks.append(lambda phase, info: runs.append(info)); "
        "import ottla_broker.__main__; print(runs, gc.isenabled(), gc.get_freeze_count() > 10_000)"
    )
    assert run_python(program) == "[] True True\n"


PRINT_CRC = "from ottla_broker.wire.crc import crc32c; import sys; print(crc32c(b'123456789'), 'crc32c' in sys.modules)"


def test_crc32c_is_loaded_without_its_package() -> None:
    assert run_python(PRINT_CRC) == f"{0xE3069283} False\n"


def test_crc32c_is_imported_if_the_package_has_another_layout(tmp_path: Path) -> None:
    (tmp_path / "crc32c.py").write_text("crc32c = len")
    assert run_python(PRINT_CRC, tmp_path) == "9 True\n"


def run_python(program: str, *path: Path) -> str:
    environment = {"PYTHONPATH": os.pathsep.join(map(str, (*path, Path(ottla_broker.__path__[0]).parent)))}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
