"""What a Pipeline's looks ask the brokers: which topics there are, and how far behind the pipeline's consumer group is."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ottla_broker.wire.errors import KafkaError
from ottla_operator.brokers import groups, offsets, topics
from ottla_operator.brokers.link import Link, Unreachable, connected
from ottla_operator.kube.api import Api
from ottla_operator.kube.kinds import POD
from ottla_operator.plan.objects import names
from ottla_operator.plan.pods_seen import broker_pods
from ottla_operator.resources.cluster import Cluster

WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Brokers:
    """Of the Cluster with this link; or why none can be asked."""

    link: Link | None
    why: str = ""

    async def existing(self, wanted: Iterable[str]) -> set[str] | str:
        """Those of the topics that exist; or why that is not known."""
        if self.link is None:
            return self.why
        try:
            return set(await topics.describe(self.link, wanted))
        except (Unreachable, KafkaError) as error:
            return f"the brokers cannot be asked: {error}"

    async def lag(self, group: str, read: Iterable[str]) -> int | None:
        """Records of the topics that the group has not read yet; None while it has read none, or nobody can be asked."""
        if self.link is None:
            return None
        try:
            done = await groups.committed(self.link, group)
            found = await topics.describe(self.link, read)
            ends = await offsets.offsets(self.link, found.values(), offsets.LATEST)
        except (Unreachable, KafkaError):
            return None
        if not any(topic in found for topic, _ in done):
            return None
        return sum(max(0, end - done.get(place, 0)) for place, end in ends.items())


@asynccontextmanager
async def brokers_of(api: Api, cluster: Cluster) -> AsyncIterator[Brokers]:
    """By the pods that are ready."""
    port = names.brokers_port(cluster)
    pods = broker_pods(cluster, await api.list(POD, cluster.metadata.namespace, names.selector_text(cluster)))
    at = [f"[{it.ip}]:{port}" if ":" in it.ip else f"{it.ip}:{port}" for it in pods.values() if it.ready and it.ip]
    if not at:
        yield Brokers(None, f"no broker of Cluster {cluster.name} is ready")
        return
    try:
        async with connected(",".join(at), WITHIN_S) as link:
            yield Brokers(link)
    except (Unreachable, KafkaError) as error:
        yield Brokers(None, f"the brokers cannot be asked: {error}")
