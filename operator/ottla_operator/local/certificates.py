"""Certificates of listeners for `ottla up`: from a Secret that stands in the files to files that brokers read, in a folder that their digest names.

.ottla/<cluster>/certificates/<digest>/keystore.pem, ca.crt
"""

import os
from pathlib import Path

from ottla_operator.plan.broker_processes import KEYSTORE
from ottla_operator.plan.listener_certificates import AUTHORITIES, ListenerCertificates


def written(folder: Path, found: ListenerCertificates) -> Path:
    """The folder of these files, below `folder`, the cluster's. Older ones stay: a broker that is still to be restarted may need them."""
    place = folder / "certificates" / found.digest
    if not (place / KEYSTORE).exists():
        place.mkdir(parents=True, exist_ok=True)
        if found.authorities:
            _write(place / AUTHORITIES, found.authorities)
        _write(place / KEYSTORE, f"{found.key.strip()}\n{found.chain.strip()}\n")
    return place


def _write(path: Path, text: str) -> None:
    """For nobody else to read, and never seen half."""
    scratch = path.with_suffix(".tmp")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    scratch.replace(path)
