"""The current leader of a partition, for the response to a client that asked the wrong broker and
then needs no Metadata request (KIP-951)."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.requests.context import RequestContext
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.node_endpoints import NodeEndpoint

WRONG_BROKER_ERRORS: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})


def current_leader(context: RequestContext, topic: str | UUID, partition: int) -> tuple[int, int] | None:
    """(id, epoch); None while there is no leader, as far as this broker knows."""
    image = context.broker.image
    topic_image = image.topic_by_id(topic) if isinstance(topic, UUID) else image.topics.get(topic)
    registration = None if topic_image is None else topic_image.partitions.get(partition)
    if registration is None or registration.leader == NO_LEADER:
        return None
    return registration.leader, registration.leader_epoch


def leader_endpoints(context: RequestContext, brokers: Iterable[int]) -> list[NodeEndpoint]:
    """Endpoints of these leaders, each once, on the listener of the client's connection."""
    found: dict[int, NodeEndpoint] = {}
    for broker in brokers:
        registered = context.broker.image.brokers.get(broker)
        endpoint = None if registered is None else registered.endpoints.get(context.connection.listener)
        if registered is not None and endpoint is not None and broker not in found:
            found[broker] = NodeEndpoint(broker, endpoint.host, endpoint.port, registered.rack)
    return list(found.values())
