"""Connections of reconcilers to the brokers of a Cluster."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from ottla_broker.wire.errors import KafkaError
from ottla_operator.kafka.client import KafkaClient, Unreachable, connect
from ottla_operator.plan.conditions import Reconciling
from ottla_operator.reconcile.platform import Blocked, BrokerAccess, Platform
from ottla_operator.resources.cluster import Cluster

CONNECT_TIMEOUT_S: Final = 5.0
"""For reconcilers that go on without the brokers' responses."""


@dataclass(frozen=True, slots=True)
class Connection:
    """`error`: why there is no client; empty if there is one, or no broker to connect to."""

    client: KafkaClient | None
    error: str = ""


@asynccontextmanager
async def try_connect(access: BrokerAccess, timeout_s: float) -> AsyncIterator[Connection]:
    """Connects to a cluster by some of its brokers. Raises nothing when none answers."""
    async with AsyncExitStack() as stack:
        connection = Connection(None)
        if access.addresses:
            try:
                connecting = connect(",".join(access.addresses), timeout_s, access.security)
                connection = Connection(await stack.enter_async_context(connecting))
            except (Unreachable, KafkaError) as error:
                connection = Connection(None, f"cannot reach the brokers: {error}")
        yield connection


async def access_ready_brokers(platform: Platform, cluster: Cluster) -> BrokerAccess:
    """Raises Blocked while no broker is ready."""
    access = await platform.broker_access(cluster)
    if not access.addresses:
        raise Blocked(Reconciling("ClusterNotReady", f"no broker of Cluster {cluster.name} is ready"))
    return access


@asynccontextmanager
async def connect_to_cluster(platform: Platform, cluster: Cluster, timeout_s: float) -> AsyncIterator[KafkaClient]:
    """Raises Blocked while no broker is ready, and when none answers, inside the block as well."""
    access = await access_ready_brokers(platform, cluster)
    try:
        async with connect(",".join(access.addresses), timeout_s, access.security) as client:
            yield client
    except Unreachable as error:
        raise Blocked(Reconciling("BrokersUnreachable", f"cannot reach the brokers: {error}")) from error
