"""What a broker answers while it starts: what other brokers need of it, without which none of them could start."""

from typing import Final

from ottla_broker.api.table import FETCH
from ottla_broker.wire.codec import API_VERSIONS, RequestHeader
from ottla_broker.wire.fetch_request import CONSUMER, read_fetch_request

_EARLY: Final = frozenset(
    {
        API_VERSIONS,
        23,  # OffsetForLeaderEpoch
        53,  # BeginQuorumEpoch
        55,  # DescribeQuorum
        56,  # AlterPartition
        59,  # FetchSnapshot
        62,  # BrokerRegistration
        63,  # BrokerHeartbeat
        67,  # AllocateProducerIds
    }
)


def may_come_early(frame: bytearray, header: RequestHeader) -> bool:
    """Raises Malformed."""
    if header.api_key == FETCH:
        return read_fetch_request(frame, header).replica != CONSUMER
    return header.api_key in _EARLY
