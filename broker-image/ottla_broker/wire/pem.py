"""Certificates and keys in PEM (RFC 7468), as text."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_WHOLE_KEY: Final = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.+?-----END \1-----", re.DOTALL)
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def find_certificates(text: str) -> list[str]:
    """Every certificate, in the order of the text."""
    return _CERTIFICATE.findall(text)


def find_key(text: str) -> str:
    """The first private key; empty without one."""
    found = _WHOLE_KEY.search(text)
    return found.group() if found else ""


def has_key(text: str) -> bool:
    return _KEY.search(text) is not None


def has_encrypted_key(text: str) -> bool:
    return "-----BEGIN ENCRYPTED PRIVATE KEY-----" in text or "Proc-Type: 4,ENCRYPTED" in text


@contextmanager
def open_as_file(text: str) -> Iterator[str]:
    """Path of a temporary file with this text: the ssl module reads certificates and keys from
    files only.

    On Linux the file is in memory, because a key does not belong on a disk and a container may have
    no writable one.
    """
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("pem", os.MFD_CLOEXEC), "wb") as memory:
            memory.write(text.encode())
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        import tempfile  # half a MiB

        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(text)
            file.flush()
            yield file.name
