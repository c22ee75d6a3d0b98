"""Reads partitions of a topic in chunks of whole batches, from their leaders."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

from ottla_broker.metadata.image import TopicImage
from ottla_broker.wire.client import RETRIABLE_ERRORS, Client
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

CHUNK_BYTES: Final = 128 << 10
"""Small, because each chunk passes through the event loop that serves clients: at worst half a
millisecond of its time, where every record is a batch of its own."""
RETRY_PAUSE_S: Final = 0.2
MAX_ATTEMPTS: Final = 50
"""Enough for the 10 s in which a partition may change its leader."""

StartKind = Literal["newest", "oldest", "offset", "time"]
START_KINDS: Final = ("newest", "oldest", "offset", "time")


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin in each partition. `at`: an offset, or milliseconds since 1970, by the
    kind.
    """

    kind: StartKind
    at: int = 0


@dataclass(slots=True)
class OffsetRange:
    """Offsets of a partition that are still to be read, from `next` up to but not including
    `end`.
    """

    partition: int
    next: int
    end: int

    @property
    def left(self) -> int:
        return max(0, self.end - self.next)


@dataclass(frozen=True, slots=True)
class Chunk:
    """`records`: whole batches, which may begin before offset `first`. `next`: the offset after the
    last of them. `deleted`: number of offsets before `first` that retention has removed meanwhile.
    """

    records: bytes
    first: int
    next: int
    deleted: int = 0


async def find_ranges(
    client: Client, topic: TopicImage, partitions: list[int], start: Start, newest: int
) -> list[OffsetRange]:
    """The range of each partition from the start to its present end. `newest`: number of offsets
    before the end at which the start `newest` begins. Raises KafkaError, OSError.
    """

    async def find(partition: int) -> OffsetRange:
        end = await client.list_offset(topic.name, partition, LATEST_TIMESTAMP)
        low = await client.list_offset(topic.name, partition, EARLIEST_TIMESTAMP)
        match start.kind:
            case "newest":
                first = end - newest
            case "offset":
                first = start.at
            case "time":
                found = await client.list_offset(topic.name, partition, start.at)
                first = end if found < 0 else found
            case "oldest":
                first = low
        return OffsetRange(partition, min(max(first, low), end), end)

    return list(await asyncio.gather(*map(find, partitions)))


async def read_chunk(client: Client, topic: str, range_: OffsetRange) -> Chunk:
    """Fetches the records at the range's next offset, from its leader. The chunk is empty at the
    end of the range or the partition, and where retention has removed the records. An empty
    response elsewhere is that of a throttled fetch, which is repeated. Raises KafkaError, OSError.
    """
    for attempt in range(MAX_ATTEMPTS):
        if attempt:
            await asyncio.sleep(RETRY_PAUSE_S)
        try:
            fetched = await client.fetch(topic, range_.partition, range_.next, max_bytes=CHUNK_BYTES, max_wait_s=0.0)
        except ConnectionError:
            if attempt == MAX_ATTEMPTS - 1:
                raise
            with suppress(ConnectionError, KafkaError):
                await client.metadata([topic])  # another broker may lead the partition now
            continue
        except KafkaError as error:
            if error.code is ErrorCode.offset_out_of_range:
                return await _skip_deleted(client, topic, range_)
            if error.code not in RETRIABLE_ERRORS or attempt == MAX_ATTEMPTS - 1:
                raise
            continue
        if fetched.records:
            return Chunk(fetched.records, range_.next, fetched.next_offset)
        if range_.next >= min(range_.end, fetched.high_watermark):
            return Chunk(b"", range_.next, range_.next)
    message = f"{topic}-{range_.partition} returns no records at offset {range_.next}, which is below its end"
    raise KafkaError(ErrorCode.unknown_server_error, message)


async def _skip_deleted(client: Client, topic: str, range_: OffsetRange) -> Chunk:
    """An empty chunk up to the log start, which retention has moved. Raises OFFSET_OUT_OF_RANGE if
    the log has become shorter instead.
    """
    low = await client.list_offset(topic, range_.partition, EARLIEST_TIMESTAMP)
    if low <= range_.next:
        raise KafkaError(ErrorCode.offset_out_of_range, f"{topic}-{range_.partition} has no offset {range_.next}")
    return Chunk(b"", low, low, deleted=low - range_.next)


async def read_ranges(
    client: Client, topic: str, ranges: list[OffsetRange]
) -> AsyncIterator[tuple[OffsetRange, Chunk]]:
    """Every chunk of every range, partition by partition. The next chunk is fetched while the
    caller works on one, and each range has its new position when its chunk is yielded.
    """
    for range_ in ranges:
        fetching = asyncio.create_task(read_chunk(client, topic, range_)) if range_.left else None
        try:
            while fetching is not None:
                chunk = await fetching
                range_.next = chunk.next
                fetching = asyncio.create_task(read_chunk(client, topic, range_)) if range_.left else None
                yield range_, chunk
        finally:
            if fetching is not None:
                fetching.cancel()


def format_positions(positions: Mapping[int, int]) -> str:
    """Next offsets by partition as text, `0:120,1:98`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))
