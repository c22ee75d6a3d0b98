"""Availability of the consumer protocol (KIP-848) to clients."""

from ottla_broker.metadata.features import GROUP_VERSION
from ottla_broker.requests.context import RequestContext


def is_consumer_protocol_enabled(ctx: RequestContext) -> bool:
    """True if this broker's settings and the cluster's finalized feature enable it."""
    is_finalized = ctx.broker.image.feature_level(GROUP_VERSION) >= 1
    return is_finalized and ctx.broker.group_coordinator.config.consumer.is_enabled
