"""Who leads a partition that was asked for in the wrong place, and where that broker is: a client that is told needs no
Metadata request to go on (KIP-951)."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import FetchRequestPartition
from ottla_broker.wire.node_endpoints import NodeEndpoint

TOLD_WITH: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})


def leader_of(context: RequestContext, wanted: FetchRequestPartition, code: ErrorCode) -> tuple[int, int] | None:
    """(id, epoch) of the leader, for an answer with `code`."""
    return current_leader(context, wanted.topic, wanted.partition) if code in TOLD_WITH else None


def current_leader(context: RequestContext, topic: str | UUID, partition: int) -> tuple[int, int] | None:
    """None while there is none, as far as is known here."""
    image = context.broker.image
    known = image.topic_by_id(topic) if isinstance(topic, UUID) else image.topics.get(topic)
    state = None if known is None else known.partitions.get(partition)
    return None if state is None or state.leader == NO_LEADER else (state.leader, state.leader_epoch)


def addresses_of(context: RequestContext, leaders: Iterable[tuple[int, int]]) -> list[NodeEndpoint]:
    """Of these leaders, each once, on the listener that the client came by."""
    found: dict[int, NodeEndpoint] = {}
    for broker, _ in leaders:
        registered = context.broker.image.brokers.get(broker)
        endpoint = None if registered is None else registered.endpoints.get(context.connection.listener)
        if registered is not None and endpoint is not None and broker not in found:
            found[broker] = NodeEndpoint(broker, endpoint.host, endpoint.port, registered.rack)
    return list(found.values())
