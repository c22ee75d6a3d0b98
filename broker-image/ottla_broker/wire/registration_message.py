"""BrokerRegistration (62), version 4, with Ottla's tagged field for the broker's node.

Between brokers only. A controller of a version that does not know the field skips it (KIP-482).
"""

from dataclasses import dataclass, field
from typing import Final

from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest

NODE_TAG: Final = 10_000
"""Far from the tags that Kafka numbers from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OttlaBrokerRegistrationRequest(BrokerRegistrationRequest):
    """`node`: the broker's setting broker.node."""

    node: str | None = field(default=None, metadata={"kafka_type": "string", "tag": NODE_TAG})
