"""A broker that has started has imported what it needs, and nothing that only few brokers need:
each module takes processor time of its start, and memory.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ottla_broker
from tests.brokers import run_ottla_broker

NOT_IMPORTED = [
    "cramjam",  # compression of records: 1.7 MiB
    "importlib.metadata",  # and with it email and zipfile: 2 MiB
    "ottla_broker.mirroring.mirror_manager",
    "ottla_broker.mirroring.synchronizer",
    "ottla_broker.mirroring.source_fetcher",
    "ottla_broker.wire.client",
]

MESSAGES = {"broker_heartbeat", "broker_registration", "request_header", "response_header", "voters_record"}
"""Of Kafka's protocol: a version of a message takes 2 ms and 0.1 MiB."""


def test_a_started_broker_has_imported_only_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # prints each imported module
    with run_ottla_broker() as broker:
        log = broker.log_tail(characters=1_000_000)
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", log, re.MULTILINE))
    assert "ottla_broker.mirroring.lazy_mirrors" in imported
    assert sorted(imported & set(NOT_IMPORTED)) == []
    assert {found[1] for name in imported if (found := re.fullmatch(r"kio\.schema\.(\w+)\.v\d+", name))} == MESSAGES


PRINT_CRC = "from ottla_broker.wire.crc import crc32c; import sys; print(crc32c(b'123456789'), 'crc32c' in sys.modules)"


def print_crc(*path: Path) -> str:
    environment = {"PYTHONPATH": ":".join(map(str, (*path, *Path(ottla_broker.__path__[0]).parents[:1])))}
    return subprocess.run(
        [sys.executable, "-c", PRINT_CRC], env=environment, capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_crc32c_is_loaded_without_its_package() -> None:
    assert print_crc() == f"{0xE3069283} False\n"


def test_crc32c_is_imported_from_a_package_with_other_modules(tmp_path: Path) -> None:
    (tmp_path / "crc32c.py").write_text("crc32c = len")
    assert print_crc(tmp_path) == "9 True\n"
