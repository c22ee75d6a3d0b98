"""Whether resources that are each good can be together: topics never have more replicas than their cluster has brokers, and a Secret that listeners need is there."""

import time
from collections.abc import Iterator, Sequence

from ottla_operator.local import secrets
from ottla_operator.local.documents import Document
from ottla_operator.plan import listener_certificates
from ottla_operator.plan.source_credentials import SecretUnusable
from ottla_operator.resources import validation
from ottla_operator.resources.cluster import Cluster


def misfits(documents: Sequence[Document]) -> Iterator[str]:
    """One line for each topic that does not fit, and for each Secret that is not as it has to be."""
    clusters = {it.name: it for it in documents if it.kind == "Cluster"}
    for it in documents:
        if it.kind != "Topic" or (cluster := clusters.get(it.data["spec"]["clusterRef"]["name"])) is None:
            continue
        wanted, there = it.data["spec"].get("replicas"), cluster.data["spec"]["replicas"]
        if wanted is not None and wanted > there:
            place = cluster.where(("spec", "replicas"))
            said = f"{wanted} replicas need as many brokers; Cluster {cluster.name} has {there}, in {place}"
            yield it.says(validation.Problem(("spec", "replicas"), said))
    found = secrets.seen(it.data for it in documents if it.kind == secrets.KIND)
    for it in clusters.values():
        try:
            made = listener_certificates.read_certificates(Cluster.parse(it.data), found)
            if made is not None:
                listener_certificates.check_certificates(made, time.time())
        except SecretUnusable as error:
            yield f"{it.where(('spec', 'tls', 'secretRef'))}: {error}"
