"""Whether resources that are each good can be together: topics never have more replicas than their cluster has brokers."""

from collections.abc import Iterator, Sequence

from ottla_operator.local.documents import Document
from ottla_operator.resources import check


def misfits(documents: Sequence[Document]) -> Iterator[str]:
    """One line for each topic that does not fit."""
    clusters = {it.name: it for it in documents if it.kind == "Cluster"}
    for it in documents:
        if it.kind != "Topic" or (cluster := clusters.get(it.data["spec"]["clusterRef"]["name"])) is None:
            continue
        wanted, there = it.data["spec"].get("replicas"), cluster.data["spec"]["replicas"]
        if wanted is not None and wanted > there:
            place = cluster.where(("spec", "replicas"))
            said = f"{wanted} replicas need as many brokers; Cluster {cluster.name} has {there}, in {place}"
            yield it.says(check.Problem(("spec", "replicas"), said))
