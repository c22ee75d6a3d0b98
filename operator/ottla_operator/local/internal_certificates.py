"""Writes the certificates of a Cluster's own authority to files that only their owner can read."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla_operator.certificates.internal_authority import ClusterCertificates, maintain_certificates
from ottla_operator.local.home import Home, replace_file
from ottla_operator.plan.broker_processes import HOST, KEYSTORE
from ottla_operator.plan.listener_certificates import AUTHORITIES, CHAIN, KEY
from ottla_operator.resources.cluster import Cluster

NAMES: Final = (HOST, "::1", "localhost")
_PRIVATE: Final = 0o600


def maintain_certificate_files(home: Home, cluster: Cluster) -> ClusterCertificates:
    """Creates missing certificates, renews those that are due and writes all changed files, the
    authority's before the brokers'. Brokers reload changed files. Raises SecretUnusable.
    """
    authority, brokers = home.authority(cluster.name), home.internal_certificates(cluster.name)
    stored = read_files(authority)
    made = maintain_certificates(cluster, stored, _read_brokers(brokers), NAMES, time.time())
    _write_files(authority, made.authority)
    keystore = f"{made.brokers[KEY].strip()}\n{made.brokers[CHAIN].strip()}\n"
    _write_files(brokers, {AUTHORITIES: made.brokers[AUTHORITIES], KEYSTORE: keystore})
    for expired in stored.keys() - made.authority.keys():
        (authority / expired).unlink()
    return made


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Writes the files whose content differs, in the order of the mapping."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    present = read_files(folder)
    for name, text in files.items():
        if present.get(name) != text:
            replace_file(folder / name, text, mode=_PRIVATE)


def read_files(folder: Path) -> dict[str, str]:
    """Content of the files by name; empty without the folder."""
    return {it.name: it.read_text() for it in folder.iterdir() if it.is_file()} if folder.is_dir() else {}


def _read_brokers(folder: Path) -> dict[str, str]:
    keystore = read_files(folder).get(KEYSTORE, "")
    key, separator, chain = keystore.partition("-----BEGIN CERTIFICATE-----")
    return {KEY: key, CHAIN: separator + chain} if keystore else {}
