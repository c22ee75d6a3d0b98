"""Loading a coordinator's state from its partition of an internal topic, in steps between which the
event loop serves other requests.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Final, Protocol, TypeVar

from ottla_broker.coordination.journal import Journal
from ottla_broker.wire.batch import BatchHeader, Buffer, has_valid_crc, iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.records import decompress_records, iter_record_spans

logger = logging.getLogger(__name__)

LOADING_SLICE_S: Final = 0.005
"""How long loading blocks the event loop before it yields."""
RECORDS_PER_STEP: Final = 64

ApplyRecord = Callable[[BatchHeader, bytes | None, bytes | None], None]
"""Applies a record by its batch, key and value. Raises MalformedMessage."""


class ShardState(Enum):
    """The state of a coordinator for one partition of an internal topic."""

    loading = auto()
    serving = auto()
    failed = auto()
    closed = auto()


class Shard(Protocol):
    """A coordinator for one partition of an internal topic."""

    partition: int
    state: ShardState

    async def load(self) -> None:
        """Returns when it serves, when loading has failed, or when it is closed."""
        ...

    def close(self) -> None: ...


ShardT = TypeVar("ShardT", bound=Shard)


async def load_shard(shards: dict[int, ShardT], shard: ShardT, journal: Journal, loading_lock: asyncio.Lock) -> None:
    """Puts the shard of a partition that this broker begins to lead into a coordinator's `shards`
    and loads it. `loading_lock`: the coordinator's lock, so that one shard loads at a time: several
    would each take a slice of every event loop iteration.
    """
    partition = shard.partition
    unload_shard(shards, partition)
    shards[partition] = shard
    try:
        await journal.wait_until_recovered()
    except KafkaError:  # another broker leads it by now
        if shards.get(partition) is shard:  # else it was unloaded before this task started
            unload_shard(shards, partition)
        return
    async with loading_lock:
        await shard.load()


def unload_shard(shards: dict[int, ShardT], partition: int) -> None:
    """Closes the shard of a partition that this broker no longer leads, or is about to load
    again.
    """
    if (shard := shards.pop(partition, None)) is not None:
        shard.close()


def serving_shards(shards: Mapping[int, ShardT]) -> list[ShardT]:
    return [shard for shard in shards.values() if shard.state is ShardState.serving]


def check_shard_serving(state: ShardState) -> None:
    """Raises KafkaError with the error for clients unless the shard serves requests."""
    if state is ShardState.loading:
        raise KafkaError(ErrorCode.coordinator_load_in_progress)
    if state is ShardState.failed:
        raise KafkaError(ErrorCode.coordinator_not_available, "the coordinator's partition could not be loaded")
    if state is ShardState.closed:
        raise KafkaError(ErrorCode.not_coordinator)


async def load_state(journal: Journal, steps: Iterable[None], is_closed: Callable[[], bool]) -> ShardState:
    """Runs the steps that apply a shard's journal. Returns the next state of the shard; the error
    of a failure is logged.
    """
    try:
        await run_in_slices(steps, is_closed)
    except (KafkaError, OSError) as reason:
        logger.error("failed to load %s-%d: %s", journal.topic, journal.partition, reason)
        return ShardState.closed if is_closed() else ShardState.failed
    return ShardState.closed if is_closed() else ShardState.serving


async def run_in_slices(steps: Iterable[None], is_closed: Callable[[], bool]) -> None:
    """Runs the steps, yielding to the event loop every `LOADING_SLICE_S`; ends early when
    `is_closed`.
    """
    loop = asyncio.get_running_loop()
    slice_started_s = loop.time()
    for _ in steps:
        if loop.time() - slice_started_s > LOADING_SLICE_S:
            await asyncio.sleep(0)
            slice_started_s = loop.time()
            if is_closed():
                return


def apply_records(chunk: Buffer, apply: ApplyRecord) -> Iterator[None]:
    """Applies the records of whole batches, `RECORDS_PER_STEP` in a step. Raises KafkaError:
    CORRUPT_MESSAGE, with the offset.
    """
    count = 0
    for at, header in iter_batches(chunk):
        if not has_valid_crc(chunk, header, at):
            raise KafkaError(ErrorCode.corrupt_message, f"invalid CRC of the batch at offset {header.base_offset}")
        delta = 0  # of the record at hand
        try:
            for _, _, _, at_delta, key, value, _ in iter_record_spans(
                decompress_records(chunk, header, at), header.count
            ):
                delta = at_delta
                apply(header, key, value)
                count += 1
                if not count % RECORDS_PER_STEP:
                    yield
        except MalformedMessage as reason:
            where = f"record at offset {header.base_offset + delta}"
            raise KafkaError(ErrorCode.corrupt_message, f"{where}: {reason}") from reason
