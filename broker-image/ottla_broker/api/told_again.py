"""The last answer that brought records of one partition, for the next who asks the same: many consumers of a busy topic wait at its end, and are
all told the same when it grows. Only the correlation id differs."""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla_broker.requests.context import Buffers
from ottla_broker.wire.errors import KafkaError
from ottla_broker.wire.fetch import FetchRequestPartition, FetchResponsePartition

if TYPE_CHECKING:
    from ottla_broker.api.fetch import Fetch
    from ottla_broker.replication.partition import Partition

LARGEST: Final = 1 << 20  # bytes; what is kept is the broker's memory
_CORRELATION_AT: Final = 4
_I32 = struct.Struct(">i")

State = tuple[object, int, int, int, bool]


@dataclass(slots=True)
class Told:
    wanted: FetchRequestPartition
    version: int
    isolation: int
    limit: int
    partition: "Partition"
    state: State
    size: int
    buffers: Buffers


class ToldAgain:
    """One per broker, for the fetches of consumers that name one partition, without a session and without looking at racks."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: Told | None = None

    def answer(self, fetch: "Fetch") -> Buffers | None:
        """None unless everything that an answer depends on is as it was."""
        told, request = self._told, fetch.request
        if told is None or request.partitions[0].offset != told.wanted.offset:
            return None
        if (
            request.partitions[0] != told.wanted
            or fetch.header.version != told.version
            or fetch.limit != told.limit
            or request.isolation != told.isolation
            or request.min_bytes > told.size
        ):
            return None
        try:
            partition = fetch.find(told.wanted)
        except KafkaError:
            return None
        if partition is not told.partition or _state_of(partition) != told.state:
            return None
        partition.traffic.bytes_out += told.size
        head = bytearray(told.buffers[0])
        _I32.pack_into(head, _CORRELATION_AT, fetch.header.correlation_id)
        return [head, *told.buffers[1:]]

    def remember(
        self, fetch: "Fetch", partition: "Partition", fetched: FetchResponsePartition, buffers: Buffers
    ) -> None:
        """`fetch` was told `fetched`, of which it has records."""
        request, size = fetch.request, len(fetched.records)
        if size <= LARGEST:
            wanted, version, state = request.partitions[0], fetch.header.version, _state_of(partition)
            self._told = Told(wanted, version, request.isolation, fetch.limit, partition, state, size, buffers)


def _state_of(partition: "Partition") -> State:
    log = partition.log
    return (
        partition.registration,
        log.high_watermark,
        log.last_stable_offset,
        log.start,
        partition.has_reached_epoch_start,
    )
