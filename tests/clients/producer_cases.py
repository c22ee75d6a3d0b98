"""Requests of and about producers. Each function of `PRODUCER_CASES` is named after an
API.
"""

import struct
import time
from typing import Any
from zlib import crc32

from crc32c import crc32c

from ottla_broker.wire.batch import Compression
from ottla_broker.wire.records import Record, encode_batch
from tests.clients.api_session import START_MS, ApiSession, encode_values
from tests.clients.topic_cases import UNKNOWN_ID
from tests.waiting import eventually_async

COUNT_AT, CRC_AT, MAGIC_AT = 57, 17, 16  # in a batch's header
FAR_FUTURE_MS = 4_000_000_000_000


async def produce(session: ApiSession) -> None:
    main_topic = await session.create_topic("there", 2)

    def fields(name: str, *written: tuple[int, bytes | None], acks: int = -1, **more: Any) -> dict[str, Any]:
        partitions = [{"index": index, "records": records} for index, records in written]
        topic_id = session.ids.get(name, UNKNOWN_ID)
        topic = {"name": name, "topic_id": topic_id, "partition_data": partitions}
        return {"acks": acks, "timeout": 10_000, "topic_data": [topic], **more}

    async def ask(case: str, name: str, *written: tuple[int, bytes | None], **more: Any) -> None:
        await session.send_case(case, **fields(name, *written, **more))

    async def new_topic() -> str:
        """Creates a topic for a case in which Ottla differs on purpose, so that later cases have
        equal offsets.
        """
        return await session.create_topic(f"odd-{len(session.ids)}")

    good = encode_values(b"a", b"b")
    await ask("two records", main_topic, (0, good))
    await ask("acks=1", main_topic, (0, good), acks=1)
    await session.send_case_without_response("acks=0", **fields(main_topic, (0, good), acks=0))
    await ask("two partitions", main_topic, (0, good), (1, good))
    await ask("acks=2", main_topic, (0, good), acks=2)
    await ask("acks=-2", main_topic, (0, good), acks=-2)
    await ask("acks=2 of two batches", main_topic, (0, good + good), acks=2)
    await ask("acks=2 to an unknown topic", session.unique_name("unknown"), (0, good), acks=2)
    await ask("an unknown topic", session.unique_name("unknown"), (0, good))
    await session.send_case_without_response(
        "acks=0 to an unknown topic", **fields(session.unique_name("unknown"), (0, good), acks=0)
    )
    await ask("an unknown partition", main_topic, (9, good), (0, good))
    await ask("a negative partition", main_topic, (-1, good))
    # Not tested: null records. Kafka fails to write the response, and the connection hangs.
    await ask("no bytes", main_topic, (0, b""))
    await session.send_case("no topic", acks=-1, timeout=10_000, topic_data=())
    await session.send_case_without_response(
        "acks=0 with a corrupt batch", **fields(main_topic, (0, good[:-1] + b"!"), acks=0)
    )
    await ask("corrupt bytes", main_topic, (0, good[:-1] + b"!"))
    await ask("a wrong CRC", main_topic, (0, good[:CRC_AT] + b"\0\0\0\0" + good[CRC_AT + 4 :]))
    await ask("cut short", main_topic, (0, good[:-5]))
    await ask("bytes after the batch", await new_topic(), (0, good + b"\0\0\0"))
    await ask("two batches", main_topic, (0, good + good))
    await ask("magic 1", main_topic, (0, good[:MAGIC_AT] + b"\1" + good[MAGIC_AT + 1 :]))
    zstd = encode_values(b"a" * 99, compression=Compression.zstd)
    await ask("magic 1 and zstd", main_topic, (0, zstd[:MAGIC_AT] + b"\1" + zstd[MAGIC_AT + 1 :]))
    await ask("magic 3", main_topic, (0, good[:MAGIC_AT] + b"\3" + good[MAGIC_AT + 1 :]))
    await ask("magic 0, whole", main_topic, (0, encode_old_message(0)))
    await ask("magic 1, whole", main_topic, (0, encode_old_message(1)))
    await ask("base offset 7", main_topic, (0, encode_values(b"a", base_offset=7)))
    await ask("another leader's epoch", main_topic, (0, encode_values(b"a", leader_epoch=9)))
    await ask("a control batch", main_topic, (0, encode_values(b"a", control=True)))
    await ask(
        "transactional, with no transaction",
        main_topic,
        (0, encode_values(b"a", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)),
    )
    await ask("LogAppendTime from a client", await new_topic(), (0, encode_values(b"a", log_append_time_ms=START_MS)))
    await ask("too far in the future", main_topic, (0, encode_values(b"a", at_ms=FAR_FUTURE_MS)))
    await ask("a negative time", main_topic, (0, encode_values(b"a", at_ms=-5)))
    await ask("no time", main_topic, (0, encode_values(b"a", at_ms=-1)))
    await ask("gzip", main_topic, (0, encode_values(b"a" * 99, compression=Compression.gzip)))
    await ask("zstd", main_topic, (0, encode_values(b"a" * 99, compression=Compression.zstd)))
    await ask("an unknown codec", await new_topic(), (0, set_attributes(good, 5)))
    await ask("more records than the count", await new_topic(), (0, set_record_count(good, 1)))
    await ask("fewer records than the count", await new_topic(), (0, set_record_count(good, 3)))
    await ask("no records in a batch", main_topic, (0, set_record_count(good, 0)))
    await ask("a negative count", main_topic, (0, set_record_count(good, -1)))
    await ask("a transactional id", main_topic, (0, good), transactional_id=session.unique_name("tx"))
    unbegun = encode_values(b"a", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    await ask(
        "a transaction that was not begun", await new_topic(), (0, unbegun), transactional_id=session.unique_name("tx")
    )
    small = await session.create_topic("small", max_message_bytes=100)
    await ask("too large", small, (0, encode_values(b"x" * 101)))
    await ask("too large, and from offset 7 on", small, (0, encode_values(b"x" * 101, base_offset=7)))
    compacted = await session.create_topic("compacted", cleanup_policy="compact")
    await ask("no key in a compacted topic", compacted, (0, encode_values(b"a", key=None)))
    await ask("a key in a compacted topic", compacted, (0, encode_values(b"a")))
    some_keys = encode_batch([Record(START_MS, b"k", b"v"), Record(START_MS, None, b"v"), Record(START_MS, None, b"v")])
    await ask("some without key in a compacted topic", compacted, (0, some_keys))
    first: dict[str, Any] = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": 0}
    await ask("a producer's first", compacted, (0, encode_values(b"a", **first)))
    await ask("a gap and no key", compacted, (0, encode_values(b"a", key=None, **first | {"base_sequence": 5})))
    keyless = Record(START_MS, None, b"v")
    ten = [Record(START_MS, b"k", b"v")] * 10
    ten[3] = ten[7] = keyless
    for codec in (Compression.none, Compression.gzip):
        mixed = encode_batch(ten, compression=codec)
        await ask(f"two of ten without key in a compacted topic, {codec.name}", compacted, (0, mixed))
    later = [*ten[:5], Record(FAR_FUTURE_MS, b"k", b"v"), *ten[5:]]
    await ask("without key and too far in the future", compacted, (0, encode_batch(later)))
    await ask(
        "one of five too far in the future", main_topic, (0, encode_batch(later[4:9], compression=Compression.gzip))
    )
    recent = await session.create_topic("recent", message_timestamp_before_max_ms=3_600_000)
    now_ms = time.time_ns() // 1_000_000
    aged = [Record(now_ms - hours * 3_600_000, b"k", b"v") for hours in (0, 2, 0, 3, -2)]
    for codec in (Compression.none, Compression.gzip):
        await ask(f"too old and too new, {codec.name}", recent, (0, encode_batch(aged, compression=codec)))
    await ask("no time where times are bounded", recent, (0, encode_values(b"a", at_ms=-1)))
    await ask("a negative time where times are bounded", recent, (0, encode_values(b"a", at_ms=-5)))
    await ask("nonsense where times are bounded", recent, (0, set_record_count(good, 3)))
    nearer = await session.create_topic("nearer", message_timestamp_after_max_ms=1000)
    minutes = [Record(now_ms + at * 60_000, b"k", b"v") for at in (0, 10, -10, 10)]
    await ask("too new for the topic", nearer, (0, encode_batch(minutes)))
    appended = await session.create_topic("appended", message_timestamp_type="LogAppendTime")
    await ask("LogAppendTime", appended, (0, good))
    await ask("a producer's first with LogAppendTime", appended, (0, encode_values(b"a", **first)))
    await ask("any time with LogAppendTime", appended, (0, encode_batch(aged)))
    stamped = encode_batch(ten[:3], log_append_time_ms=START_MS)
    await ask("LogAppendTime from a client with LogAppendTime", appended, (0, stamped))
    await ask("its first again with LogAppendTime", appended, (0, encode_values(b"a", **first)))
    squeezed = await session.create_topic("squeezed", compression_type="gzip")
    await ask("recompressed", squeezed, (0, good))
    await ask("recompressed, nonsense inside", squeezed, (0, set_record_count(good, 3)))
    await ask("of an internal topic", "__consumer_offsets", (0, good))
    if session.version >= 13:
        await session.send_case(
            "no id",
            acks=-1,
            timeout=10_000,
            topic_data=[{"topic_id": None, "partition_data": [{"index": 0, "records": good}]}],
        )

    sequences = await session.create_topic("sequences")

    async def send_numbered(case: str, first: int, epoch: int = 0, producer: int = 4000, count: int = 1) -> None:
        values = [b"n"] * count
        await ask(
            case,
            sequences,
            (0, encode_values(*values, producer_id=producer, producer_epoch=epoch, base_sequence=first)),
        )

    await send_numbered("an unknown producer's sequence 5", 5)
    await send_numbered("an unknown producer's sequence 0", 0, producer=4001)
    await send_numbered("again", 0, producer=4001)
    await send_numbered("the next", 1, producer=4001, count=2)
    await send_numbered("a gap", 9, producer=4001)
    await send_numbered("part of an earlier batch", 1, producer=4001)
    await send_numbered("a new epoch from 5", 5, epoch=1, producer=4001)
    await send_numbered("a new epoch from 0", 0, epoch=1, producer=4001)
    await send_numbered("the old epoch", 3, producer=4001)
    await send_numbered("no sequence", -1, epoch=1, producer=4001)
    await send_numbered("no epoch", 1, epoch=-1, producer=4001)


def encode_old_message(magic: int) -> bytes:
    """One message of magic 0 or 1, with a correct CRC."""
    rest = (
        struct.pack(">bb", magic, 0)
        + (struct.pack(">q", START_MS) if magic else b"")
        + struct.pack(">i1si1s", 1, b"k", 1, b"v")
    )
    return struct.pack(">qiI", 0, len(rest) + 4, crc32(rest)) + rest


def set_record_count(batch: bytes, count: int) -> bytes:
    """The batch with another record count."""
    return update_crc(
        batch[:23]
        + struct.pack(">i", count - 1)
        + batch[27:COUNT_AT]
        + struct.pack(">i", count)
        + batch[COUNT_AT + 4 :]
    )


def set_attributes(batch: bytes, attributes: int) -> bytes:
    return update_crc(batch[:21] + struct.pack(">h", attributes) + batch[23:])


def update_crc(batch: bytes) -> bytes:
    """The batch with a correct CRC."""
    return batch[:CRC_AT] + struct.pack(">I", crc32c(batch[CRC_AT + 4 :])) + batch[CRC_AT + 4 :]


async def wait_for_producer_ids(session: ApiSession) -> None:
    """Returns when Kafka has allocated its first block of producer ids."""

    async def is_block_allocated() -> bool:
        return not (
            await session.send("init_producer_id", transactional_id=None, transaction_timeout=60_000)
        ).error_code

    await eventually_async(is_block_allocated)


async def init_producer_id(session: ApiSession) -> None:
    await wait_for_producer_ids(session)

    async def ask(case: str, **fields: Any) -> None:
        await session.send_case(case, transaction_timeout=60_000, **fields)

    await ask("a new one", transactional_id=None)
    await ask("an empty transactional id", transactional_id="")
    if session.version >= 3:
        await ask("an id without transactional id", transactional_id=None, producer_id=5, producer_epoch=3)
        await ask("an epoch alone", transactional_id=None, producer_epoch=3)
        await ask("an id alone", transactional_id=None, producer_id=5)


async def describe_producers(session: ApiSession) -> None:
    first = [encode_values(b"0", b"1", producer_id=4000, producer_epoch=2, base_sequence=0)]
    topic = await session.create_topic("there", 2, [encode_values(b"plain"), *first])

    async def ask(case: str, name: str, *partitions: int) -> None:
        await session.send_case(case, topics=[{"name": name, "partition_indexes": partitions}])

    await ask("of a partition", topic, 0)
    await ask("of an empty one", topic, 1)
    await ask("of an unknown partition", topic, 9)
    await ask("of an unknown topic", session.unique_name("unknown"), 0)
    await ask("of a bad name", "a bad name", 0)
    await ask("of none", topic)


PRODUCER_CASES = (produce, init_producer_id, describe_producers)
