"""Writes the certificates of a Cluster's own authority to files that only their owner can read."""

import time
from pathlib import Path
from typing import Final

from ottla_operator.certificates.internal_authority import ClusterCertificates, maintain_certificates
from ottla_operator.local.home import Home, read_texts, write_private_files
from ottla_operator.plan.broker_processes import HOST, KEYSTORE
from ottla_operator.plan.listener_certificates import AUTHORITIES, CHAIN, KEY
from ottla_operator.resources.cluster import Cluster

NAMES: Final = (HOST, "::1", "localhost")


def maintain_certificate_files(home: Home, cluster: Cluster) -> ClusterCertificates:
    """Creates missing certificates, renews those that are due and writes all changed files, the
    authority's before the brokers'. Brokers reload changed files. Deletes the files of expired
    authorities. Raises SecretUnusable.
    """
    authority, brokers = home.authority(cluster.name), home.internal_certificates(cluster.name)
    stored = read_texts(authority)
    issued = maintain_certificates(cluster, stored, _read_brokers(brokers), NAMES, time.time())
    write_private_files(authority, issued.authority)
    keystore = f"{issued.brokers[KEY].strip()}\n{issued.brokers[CHAIN].strip()}\n"
    write_private_files(brokers, {AUTHORITIES: issued.brokers[AUTHORITIES], KEYSTORE: keystore})
    for expired in stored.keys() - issued.authority.keys():
        (authority / expired).unlink()
    return issued


def _read_brokers(folder: Path) -> dict[str, str]:
    keystore = read_texts(folder).get(KEYSTORE, "")
    key, separator, chain = keystore.partition("-----BEGIN CERTIFICATE-----")
    return {KEY: key, CHAIN: separator + chain} if keystore else {}
