"""The brokers of a Cluster, as its pods lead to them: where they are, which topics they have, and how far behind a consumer group is."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka import groups, offsets, topics
from ottla_operator.kafka.client import KafkaClient, Unreachable, connect
from ottla_operator.kube.api import Api
from ottla_operator.kube.kinds import POD
from ottla_operator.plan.objects import names
from ottla_operator.plan.observed_pods import BrokerPod, broker_pods
from ottla_operator.resources.cluster import Cluster

WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Brokers:
    """Of the Cluster with this link; or why none can be asked."""

    link: KafkaClient | None
    why: str = ""

    async def existing(self, wanted: Iterable[str]) -> set[str] | str:
        """Those of the topics that exist; or why that is not known."""
        if self.link is None:
            return self.why
        try:
            return set(await topics.describe_topics(self.link, wanted))
        except (Unreachable, KafkaError) as error:
            return f"the brokers cannot be asked: {error}"

    async def lag(self, group: str, read: Iterable[str]) -> int | None:
        """Records of the topics that the group has not read yet; None while it has read none, or nobody can be asked."""
        if self.link is None:
            return None
        try:
            done = await groups.list_group_offsets(self.link, group)
            found = await topics.describe_topics(self.link, read)
            ends = await offsets.list_offsets(self.link, found.values(), offsets.LATEST)
        except (Unreachable, KafkaError):
            return None
        if not any(topic in found for topic, _ in done):
            return None
        return sum(max(0, end - done.get(place, 0)) for place, end in ends.items())


def addresses(cluster: Cluster, pods: Iterable[BrokerPod]) -> list[str]:
    """host:port of the brokers whose pods are ready, where the operator speaks to them."""
    usual = names.brokers_port(cluster)
    found = [(it.ip, it.port or usual) for it in pods if it.is_ready and it.ip]
    return [f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for ip, port in found]


async def ready_addresses(api: Api, cluster: Cluster) -> list[str]:
    """By the pods as they are now."""
    found = await api.list(POD, cluster.metadata.namespace, names.selector_text(cluster))
    return addresses(cluster, broker_pods(cluster, found).values())


@asynccontextmanager
async def brokers_at(at: Sequence[str], within_s: float) -> AsyncIterator[Brokers]:
    """By addresses of some of them; without a link, and without a reason, when there are none."""
    async with AsyncExitStack() as stack:
        found = Brokers(None)
        if at:
            try:
                found = Brokers(await stack.enter_async_context(connect(",".join(at), within_s)))
            except (Unreachable, KafkaError) as error:
                found = Brokers(None, f"the brokers cannot be asked: {error}")
        yield found


@asynccontextmanager
async def brokers_of(api: Api, cluster: Cluster) -> AsyncIterator[Brokers]:
    """By the pods that are ready."""
    if not (at := await ready_addresses(api, cluster)):
        yield Brokers(None, f"no broker of Cluster {cluster.name} is ready")
        return
    async with brokers_at(at, WITHIN_S) as found:
        yield found
