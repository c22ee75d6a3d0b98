"""Certificates and keys in PEM (RFC 7468), as text."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def find_certificates(text: str) -> list[str]:
    """Each certificate, in the order of the text."""
    return _CERTIFICATE.findall(text)


def has_key(text: str) -> bool:
    return _KEY.search(text) is not None


def has_encrypted_key(text: str) -> bool:
    return "-----BEGIN ENCRYPTED PRIVATE KEY-----" in text or "Proc-Type: 4,ENCRYPTED" in text


@contextmanager
def open_as_file(text: str) -> Iterator[str]:
    """The path of a file that has this text, while it is needed: the ssl module reads certificates and keys from files alone. Where the system can, the
    file is in memory: a key does not belong on a disk, and a container may have none that can be written."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("pem", os.MFD_CLOEXEC), "wb") as memory:
            memory.write(text.encode())
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name
