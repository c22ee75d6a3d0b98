"""What is asked of records: writing, reading and finding them, and who wrote them."""

import struct
from typing import Any
from zlib import crc32

from crc32c import crc32c

from ottla_broker.wire.batch import Compression
from ottla_broker.wire.records import Record, encode_batch
from tests.clients.asking import START_MS, Talk, batch
from tests.clients.topic_questions import NOBODY
from tests.waiting import eventually_async

COUNT_AT, CRC_AT, MAGIC_AT = 57, 17, 16  # in a batch's header
FAR_FUTURE_MS = 4_000_000_000_000
PLENTY = 1 << 20


async def produce(talk: Talk) -> None:
    there = await talk.topic("there", 2)

    def fields(name: str, *written: tuple[int, bytes | None], acks: int = -1, **more: Any) -> dict[str, Any]:
        partitions = [{"index": index, "records": records} for index, records in written]
        known = talk.ids.get(name, NOBODY)
        topic = {"name": name, "topic_id": known, "partition_data": partitions}
        return {"acks": acks, "timeout": 10_000, "topic_data": [topic], **more}

    async def ask(case: str, name: str, *written: tuple[int, bytes | None], **more: Any) -> None:
        await talk.ask(case, **fields(name, *written, **more))

    async def odd() -> str:
        """A topic for one case alone: where we mean to differ, the offsets of the next cases do not."""
        return await talk.topic(f"odd-{len(talk.ids)}")

    good = batch(b"a", b"b")
    await ask("two records", there, (0, good))
    await ask("acks=1", there, (0, good), acks=1)
    await talk.ask_without_answer("acks=0", **fields(there, (0, good), acks=0))
    await ask("two partitions", there, (0, good), (1, good))
    await ask("acks=2", there, (0, good), acks=2)
    await ask("acks=-2", there, (0, good), acks=-2)
    await ask("acks=2 of two batches", there, (0, good + good), acks=2)
    await ask("acks=2 to an unknown topic", talk.name("unknown"), (0, good), acks=2)
    await ask("an unknown topic", talk.name("unknown"), (0, good))
    await talk.ask_without_answer("acks=0 to an unknown topic", **fields(talk.name("unknown"), (0, good), acks=0))
    await ask("an unknown partition", there, (9, good), (0, good))
    await ask("a negative partition", there, (-1, good))
    # Not asked: null records. Kafka fails to write the answer, and the connection hangs.
    await ask("no bytes", there, (0, b""))
    await talk.ask("no topic", acks=-1, timeout=10_000, topic_data=())
    await talk.ask_without_answer("acks=0 of what is corrupt", **fields(there, (0, good[:-1] + b"!"), acks=0))
    await ask("corrupt bytes", there, (0, good[:-1] + b"!"))
    await ask("a wrong CRC", there, (0, good[:CRC_AT] + b"\0\0\0\0" + good[CRC_AT + 4 :]))
    await ask("cut short", there, (0, good[:-5]))
    await ask("bytes behind", await odd(), (0, good + b"\0\0\0"))
    await ask("two batches", there, (0, good + good))
    await ask("magic 1", there, (0, good[:MAGIC_AT] + b"\1" + good[MAGIC_AT + 1 :]))
    zstd = batch(b"a" * 99, compression=Compression.zstd)
    await ask("magic 1 and zstd", there, (0, zstd[:MAGIC_AT] + b"\1" + zstd[MAGIC_AT + 1 :]))
    await ask("magic 3", there, (0, good[:MAGIC_AT] + b"\3" + good[MAGIC_AT + 1 :]))
    await ask("magic 0, whole", there, (0, old_message(0)))
    await ask("magic 1, whole", there, (0, old_message(1)))
    await ask("base offset 7", there, (0, batch(b"a", base_offset=7)))
    await ask("another leader's epoch", there, (0, batch(b"a", leader_epoch=9)))
    await ask("a control batch", there, (0, batch(b"a", control=True)))
    await ask(
        "transactional, with no transaction",
        there,
        (0, batch(b"a", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)),
    )
    await ask("LogAppendTime from a client", await odd(), (0, batch(b"a", log_append_time_ms=START_MS)))
    await ask("too far in the future", there, (0, batch(b"a", at_ms=FAR_FUTURE_MS)))
    await ask("a negative time", there, (0, batch(b"a", at_ms=-5)))
    await ask("no time", there, (0, batch(b"a", at_ms=-1)))
    await ask("gzip", there, (0, batch(b"a" * 99, compression=Compression.gzip)))
    await ask("zstd", there, (0, batch(b"a" * 99, compression=Compression.zstd)))
    await ask("an unknown codec", await odd(), (0, with_attributes(good, 5)))
    await ask("records behind the count", await odd(), (0, with_count(good, 1)))
    await ask("fewer records than the count", await odd(), (0, with_count(good, 3)))
    await ask("no records in a batch", there, (0, with_count(good, 0)))
    await ask("a negative count", there, (0, with_count(good, -1)))
    await ask("a transactional id", there, (0, good), transactional_id=talk.name("tx"))
    unbegun = batch(b"a", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    await ask("a transaction that was not begun", await odd(), (0, unbegun), transactional_id=talk.name("tx"))
    small = await talk.topic("small", max_message_bytes=100)
    await ask("too large", small, (0, batch(b"x" * 101)))
    await ask("too large, and from offset 7 on", small, (0, batch(b"x" * 101, base_offset=7)))
    compacted = await talk.topic("compacted", cleanup_policy="compact")
    await ask("no key in a compacted topic", compacted, (0, batch(b"a", key=None)))
    await ask("a key in a compacted topic", compacted, (0, batch(b"a")))
    some_keys = encode_batch([Record(START_MS, b"k", b"v"), Record(START_MS, None, b"v"), Record(START_MS, None, b"v")])
    await ask("some without key in a compacted topic", compacted, (0, some_keys))
    first: dict[str, Any] = {"producer_id": 4000, "producer_epoch": 0, "base_sequence": 0}
    await ask("a producer's first", compacted, (0, batch(b"a", **first)))
    await ask("a gap and no key", compacted, (0, batch(b"a", key=None, **first | {"base_sequence": 5})))
    appended = await talk.topic("appended", message_timestamp_type="LogAppendTime")
    await ask("LogAppendTime", appended, (0, good))
    await ask("a producer's first with LogAppendTime", appended, (0, batch(b"a", **first)))
    await ask("its first again with LogAppendTime", appended, (0, batch(b"a", **first)))
    squeezed = await talk.topic("squeezed", compression_type="gzip")
    await ask("recompressed", squeezed, (0, good))
    await ask("recompressed, nonsense inside", squeezed, (0, with_count(good, 3)))
    await ask("of an internal topic", "__consumer_offsets", (0, good))
    if talk.version >= 13:
        await talk.ask(
            "no id",
            acks=-1,
            timeout=10_000,
            topic_data=[{"topic_id": None, "partition_data": [{"index": 0, "records": good}]}],
        )

    ours = await talk.topic("sequences")

    async def numbered(case: str, first: int, epoch: int = 0, producer: int = 4000, count: int = 1) -> None:
        values = [b"n"] * count
        await ask(case, ours, (0, batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=first)))

    await numbered("an unknown producer's sequence 5", 5)
    await numbered("an unknown producer's sequence 0", 0, producer=4001)
    await numbered("again", 0, producer=4001)
    await numbered("the next", 1, producer=4001, count=2)
    await numbered("a gap", 9, producer=4001)
    await numbered("part of what was", 1, producer=4001)
    await numbered("a new epoch from 5", 5, epoch=1, producer=4001)
    await numbered("a new epoch from 0", 0, epoch=1, producer=4001)
    await numbered("the old epoch", 3, producer=4001)
    await numbered("no sequence", -1, epoch=1, producer=4001)
    await numbered("no epoch", 1, epoch=-1, producer=4001)


def old_message(magic: int) -> bytes:
    """One message of the formats before version 2, with a right CRC."""
    rest = (
        struct.pack(">bb", magic, 0)
        + (struct.pack(">q", START_MS) if magic else b"")
        + struct.pack(">i1si1s", 1, b"k", 1, b"v")
    )
    return struct.pack(">qiI", 0, len(rest) + 4, crc32(rest)) + rest


def with_count(good: bytes, count: int) -> bytes:
    """The batch saying that it holds so many records."""
    return sealed(
        good[:23] + struct.pack(">i", count - 1) + good[27:COUNT_AT] + struct.pack(">i", count) + good[COUNT_AT + 4 :]
    )


def with_attributes(good: bytes, attributes: int) -> bytes:
    return sealed(good[:21] + struct.pack(">h", attributes) + good[23:])


def sealed(data: bytes) -> bytes:
    """With the CRC that its bytes have."""
    return data[:CRC_AT] + struct.pack(">I", crc32c(data[CRC_AT + 4 :])) + data[CRC_AT + 4 :]


async def fetch(talk: Talk) -> None:
    there = await talk.topic(
        "there", 2, [batch(b"0", b"1", b"2"), batch(b"3", b"4"), batch(b"5", compression=Compression.gzip)]
    )
    empty = await talk.topic("empty")
    tall = await talk.topic("tall", 1, [batch(b"x" * 5000), batch(b"y" * 5000)])
    await talk.do(
        "delete_records", topics=[{"name": there, "partitions": [{"partition_index": 0, "offset": 1}]}], timeout=9000
    )

    def topic(name: str, *partitions: dict[str, Any]) -> dict[str, Any]:
        return {"topic": name, "topic_id": talk.ids.get(name, NOBODY), "partitions": partitions}

    def at(offset: int, index: int = 0, **more: Any) -> dict[str, Any]:
        return {"partition": index, "fetch_offset": offset, "partition_max_bytes": PLENTY, **more}

    async def ask(case: str, *topics: dict[str, Any], **more: Any) -> Any:
        return await talk.ask(case, **{"replica_id": -1, "max_wait": 0, "min_bytes": 0, "topics": topics, **more})

    await ask("from the start", topic(there, at(1)))
    await ask("from inside a batch", topic(there, at(4)))
    await ask("at the end", topic(there, at(6)))
    await ask("beyond the end", topic(there, at(7)))
    await ask("before the start", topic(there, at(0)))
    await ask("at -1", topic(there, at(-1)))
    await ask("an empty partition", topic(empty, at(0)))
    await ask("waiting for what does not come", topic(empty, at(0)), max_wait=10, min_bytes=1)
    await ask("beyond an empty one", topic(empty, at(1)), max_wait=5000, min_bytes=1)
    await ask("read committed", topic(there, at(1)), isolation_level=1)
    await ask("isolation level 7", topic(there, at(1)), isolation_level=7)
    await ask("an unknown partition", topic(there, at(0, 9), at(4)))
    await ask("an unknown topic", topic(talk.name("unknown"), at(0)), max_wait=5000, min_bytes=1)
    await ask("two partitions", topic(there, at(3), at(0, 1)))
    await ask("one byte of a partition", topic(tall, at(0, partition_max_bytes=1)))
    await ask("one byte in all", topic(tall, at(0)), max_bytes=1)
    await ask("one byte in all, two topics", topic(tall, at(0)), topic(there, at(1)), max_bytes=1)
    await ask("6000 bytes", topic(tall, at(0, partition_max_bytes=6000)))
    await ask("no topic")
    await ask("a replica that is none", topic(there, at(1)), replica_id=9, replica_state={"replica_id": 9})
    if talk.version >= 9:
        await ask("the leader's epoch", topic(there, at(1, current_leader_epoch=0)))
        await ask("an epoch to come", topic(there, at(1, current_leader_epoch=1)))
    if talk.version >= 12:
        await ask("last fetched epoch", topic(there, at(4, last_fetched_epoch=0)))
        await ask("last fetched epoch to come", topic(there, at(4, last_fetched_epoch=3)))
        await ask("last fetched epoch, beyond its end", topic(there, at(9, last_fetched_epoch=0)))
        await ask("another cluster", topic(there, at(4)), cluster_id="another")
    if talk.version >= 13:
        await ask("an unknown and a known id", topic(talk.name("unknown"), at(0)), topic(there, at(4)))
        await ask("no id", {"topic_id": None, "partitions": [at(0)]})
    if talk.version < 7:
        return
    made = await ask("a new session", topic(there, at(1), at(0, 1)), session_epoch=0)
    session = made.session_id
    await ask("nothing new in it", session_id=session, session_epoch=1)
    await ask("another offset in it", topic(there, at(4)), session_id=session, session_epoch=2)
    await ask("a wrong epoch", session_id=session, session_epoch=2)
    await ask("a wrong epoch ahead", session_id=session, session_epoch=9)
    await ask("a topic more", topic(tall, at(5)), session_id=session, session_epoch=3)
    gone = {"topic": there, "topic_id": talk.ids[there], "partitions": [0]}
    await ask("a partition less", forgotten_topics_data=[gone], session_id=session, session_epoch=4)
    await ask("an unknown topic in it", topic(talk.name("unknown"), at(0)), session_id=session, session_epoch=5)
    await ask("and again", session_id=session, session_epoch=6)
    await ask("another session", session_id=12345, session_epoch=1)
    await ask("another session, to be closed", session_id=12345, session_epoch=-1)
    await ask("another session, to be made", topic(there, at(4)), session_id=12345, session_epoch=0)
    await ask("closed", topic(there, at(4)), session_id=session, session_epoch=-1)
    await ask("after it was closed", session_id=session, session_epoch=7)
    nothing = await ask("a new session of nothing", session_epoch=0)
    await ask("nothing in it", session_id=nothing.session_id, session_epoch=1)
    await ask("after nothing in it", session_id=nothing.session_id, session_epoch=2)
    await fetch_in_the_other_way(talk, topic(there, at(4)))
    if talk.version >= 12:
        await fetch_again_where_logs_part(talk, topic(there, at(9, last_fetched_epoch=0)))
    gone_soon = await talk.topic("gone-soon")
    await fetch_of_a_deleted_topic(talk, gone_soon, topic(gone_soon, at(0)))
    await ask("no session, epoch 5", topic(there, at(4)), session_epoch=5)


async def fetch_again_where_logs_part(talk: Talk, wanted: dict[str, Any]) -> None:
    """A session in which nothing is new, and which asks for what is beyond the end of an epoch."""
    fields: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 0}
    made = await talk.ask("where logs part", **fields, session_epoch=0, topics=[wanted])
    await talk.ask("where they still part", **fields, session_id=made.session_id, session_epoch=1)


async def fetch_of_a_deleted_topic(talk: Talk, name: str, wanted: dict[str, Any]) -> None:
    """A session that has known a topic by its id."""
    fields: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 0}
    made = await talk.do("fetch", version=talk.version, **fields, session_epoch=0, topics=[wanted])
    await talk.do("delete_topics", topics=[{"name": name, "topic_id": None}], timeout=10_000)

    async def gone() -> bool:
        seen = await talk.do("metadata", topics=[{"topic_id": None, "name": name}], allow_auto_topic_creation=False)
        return bool(seen.topics[0].error_code)

    await eventually_async(gone)
    await talk.ask("a topic that was deleted since", **fields, session_id=made.session_id, session_epoch=1)


async def fetch_in_the_other_way(talk: Talk, wanted: dict[str, Any]) -> None:
    """A session whose topics have names is asked for ids, or the other way round."""
    fields: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "session_epoch": 0, "topics": [wanted]}
    made = await talk.do("fetch", version=12 if talk.version >= 13 else 13, **fields)
    await talk.ask("topics named in the other way", **{**fields, "session_id": made.session_id, "session_epoch": 1})


async def list_offsets(talk: Talk) -> None:
    there = await talk.topic(
        "there", 2, [batch(b"0", b"1", b"2"), batch(b"3", at_ms=START_MS + 100), batch(b"4", at_ms=START_MS + 50)]
    )
    await talk.do(
        "delete_records", topics=[{"name": there, "partitions": [{"partition_index": 0, "offset": 1}]}], timeout=9000
    )

    async def ask(case: str, timestamp: int, index: int = 0, name: str = there, **more: Any) -> None:
        epoch = more.pop("current_leader_epoch", -1)
        wanted = {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": epoch}
        topics = [{"name": name, "partitions": [wanted]}]
        await talk.ask(case, **{"replica_id": -1, "topics": topics, "timeout": 10_000, **more})

    names = {
        -1: "latest",
        -2: "earliest",
        -3: "largest time",
        -4: "earliest local",
        -5: "latest tiered",
        -6: "earliest pending",
    }
    for timestamp, what in names.items():
        await ask(what, timestamp)
        await ask(f"{what} of an empty partition", timestamp, 1)
    await ask("no such form", -7)
    await ask("time 0", 0)
    await ask("a time inside a batch", START_MS + 1)
    await ask("between batches", START_MS + 10)
    await ask("the largest time", START_MS + 100)
    await ask("behind the largest", START_MS + 101)
    await ask("time 0 of an empty partition", 0, 1)
    await ask("read committed", -1, isolation_level=1)
    await ask("time, read committed", START_MS + 1, isolation_level=1)
    await ask("unknown partition", -1, 9)
    await ask("unknown topic", -1, name=talk.name("unknown"))
    await ask("replica -2", -1, replica_id=-2)
    await ask("the leader's epoch", -1, current_leader_epoch=0)
    await ask("an epoch to come", -1, current_leader_epoch=5)
    twice = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    await talk.ask("one partition twice", replica_id=-1, topics=[{"name": there, "partitions": twice}])
    await talk.ask("no topics", replica_id=-1, topics=())


async def offset_for_leader_epoch(talk: Talk) -> None:
    there = await talk.topic("there", 2, [batch(b"0", b"1", b"2")])

    async def ask(
        case: str, epoch: int, index: int = 0, name: str = there, current: int = -1, replica: int = -1
    ) -> None:
        wanted = {"partition": index, "leader_epoch": epoch, "current_leader_epoch": current}
        await talk.ask(case, replica_id=replica, topics=[{"topic": name, "partitions": [wanted]}])

    await ask("epoch 0", 0)
    await ask("epoch 0 of an empty partition", 0, 1)
    await ask("epoch 5", 5)
    await ask("epoch -1", -1)
    await ask("current epoch 0", 0, current=0)
    await ask("current epoch 5", 0, current=5)
    await ask("unknown partition", 0, 9)
    await ask("unknown topic", 0, name=talk.name("unknown"))
    await ask("replica -2", 0, replica=-2)


async def ids_given_out(talk: Talk) -> None:
    """Kafka's first block of producer ids may be on its way."""

    async def given_out() -> bool:
        return not (await talk.do("init_producer_id", transactional_id=None, transaction_timeout=60_000)).error_code

    await eventually_async(given_out)


async def init_producer_id(talk: Talk) -> None:
    await ids_given_out(talk)

    async def ask(case: str, **fields: Any) -> None:
        await talk.ask(case, transaction_timeout=60_000, **fields)

    await ask("a new one", transactional_id=None)
    await ask("an empty transactional id", transactional_id="")
    if talk.version >= 3:
        await ask("an id without transactional id", transactional_id=None, producer_id=5, producer_epoch=3)
        await ask("an epoch alone", transactional_id=None, producer_epoch=3)
        await ask("an id alone", transactional_id=None, producer_id=5)


async def describe_producers(talk: Talk) -> None:
    first = [batch(b"0", b"1", producer_id=4000, producer_epoch=2, base_sequence=0)]
    there = await talk.topic("there", 2, [batch(b"plain"), *first])

    async def ask(case: str, name: str, *partitions: int) -> None:
        await talk.ask(case, topics=[{"name": name, "partition_indexes": partitions}])

    await ask("of a partition", there, 0)
    await ask("of an empty one", there, 1)
    await ask("of an unknown partition", there, 9)
    await ask("of an unknown topic", talk.name("unknown"), 0)
    await ask("of a bad name", "a bad name", 0)
    await ask("of none", there)


RECORD_QUESTIONS = (produce, fetch, list_offsets, offset_for_leader_epoch, init_producer_id, describe_producers)
