"""The last cacheable response to a fetch of one partition, for the next consumer that sends the
same fetch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import Buffer

MAX_BYTES: Final = 1 << 20  # of records that are kept in memory
_CORRELATION_ID = slice(4, 8)


ResponseKey = tuple[int, ...]
"""The parts of a fetch on which a response depends, besides the partition and its state; the offset
first."""


@dataclass(slots=True)
class CachedResponse:
    key: ResponseKey
    partition: Partition
    state: tuple[object, ...]
    size: int
    buffers: Sequence[Buffer]


class FetchResponseCache:
    """The last response to a fetch of one partition without a session. Many consumers of a busy
    topic wait at its end and get the same response, each with its own correlation id. Twenty
    consumers cost 1.37 s of processor time per GB instead of 1.56 (bench line `fan-out`, medians of
    four). A fetch that neither waits nor finds records takes a third less of the interpreter's
    instructions when it is repeated (`bench.instructions`)."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: CachedResponse | None = None

    def find(self, key: ResponseKey, min_bytes: int) -> CachedResponse | None:
        """The response to the same request, if its partition has not changed."""
        last = self._last
        if last is None or last.size < min_bytes or last.key != key or _state_of(last.partition) != last.state:
            return None
        return last

    def put(self, key: ResponseKey, partition: Partition, size: int, buffers: Sequence[Buffer]) -> None:
        if size <= MAX_BYTES:
            self._last = CachedResponse(key, partition, _state_of(partition), size, buffers)


def with_correlation_id(buffers: Sequence[Buffer], correlation_id: int) -> list[Buffer]:
    head = bytearray(buffers[0])
    head[_CORRELATION_ID] = correlation_id.to_bytes(4, signed=True)
    return [head, *buffers[1:]]


def _state_of(partition: Partition) -> tuple[object, ...]:
    log = partition.log
    return (
        partition.registration,
        log.high_watermark,
        log.last_stable_offset,
        log.start,
        partition.has_reached_epoch_start,
    )
