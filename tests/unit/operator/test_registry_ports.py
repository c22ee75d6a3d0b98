"""The port of the schema registry that `ottla up` serves without being asked to."""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ottla_operator.local.registry_ports import claim_port
from tests.ports import free_port


@pytest.fixture(autouse=True)
def _locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock files of this test alone."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_free_port_is_claimed_again_by_the_same_process() -> None:
    port = free_port()
    assert claim_port(port) == claim_port(port) == port


def test_a_port_that_a_program_listens_on_is_not_claimed() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert claim_port(port) != port


def test_a_port_that_another_process_has_claimed_is_not_claimed_until_that_process_ends() -> None:
    port = free_port()
    program = (
        f"from ottla_operator.local.registry_ports import claim_port; print(claim_port({port}), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == port
        assert claim_port(port) != port
        other.communicate("\n")
    assert claim_port(port) == port
