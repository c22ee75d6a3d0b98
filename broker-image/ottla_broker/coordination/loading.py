"""Loading a coordinator's state from its partition of an internal topic, in steps between which the
event loop serves other requests.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Final

from ottla_broker.wire.batch import BatchHeader, Buffer, has_valid_crc, iter_batches
from ottla_broker.wire.errors import ErrorCode, KafkaError
from ottla_broker.wire.message_reader import MalformedMessage
from ottla_broker.wire.records import decompress_records, iter_record_spans

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


def check_shard_serving(state: ShardState) -> None:
    """Raises KafkaError with the error for clients unless the shard serves requests."""
    if state is ShardState.loading:
        raise KafkaError(ErrorCode.coordinator_load_in_progress)
    if state is ShardState.failed:
        raise KafkaError(ErrorCode.coordinator_not_available, "the coordinator's partition could not be loaded")
    if state is ShardState.closed:
        raise KafkaError(ErrorCode.not_coordinator)


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
