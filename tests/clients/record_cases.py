"""Requests about records: Fetch, ListOffsets, OffsetForLeaderEpoch."""

from typing import Any

from ottla_broker.wire.batch import Compression
from tests.clients.api_session import START_MS, ApiSession, encode_values
from tests.clients.topic_cases import UNKNOWN_ID
from tests.waiting import eventually_async

MAX_BYTES = 1 << 20


async def fetch(session: ApiSession) -> None:
    main_topic = await session.create_topic(
        "there",
        2,
        [encode_values(b"0", b"1", b"2"), encode_values(b"3", b"4"), encode_values(b"5", compression=Compression.gzip)],
    )
    empty = await session.create_topic("empty")
    tall = await session.create_topic("tall", 1, [encode_values(b"x" * 5000), encode_values(b"y" * 5000)])
    await session.send(
        "delete_records",
        topics=[{"name": main_topic, "partitions": [{"partition_index": 0, "offset": 1}]}],
        timeout=9000,
    )

    def topic_fields(name: str, *partitions: dict[str, Any]) -> dict[str, Any]:
        return {"topic": name, "topic_id": session.ids.get(name, UNKNOWN_ID), "partitions": partitions}

    def fetch_at(offset: int, index: int = 0, **more: Any) -> dict[str, Any]:
        return {"partition": index, "fetch_offset": offset, "partition_max_bytes": MAX_BYTES, **more}

    async def ask(case: str, *topics: dict[str, Any], **more: Any) -> Any:
        return await session.send_case(
            case, **{"replica_id": -1, "max_wait": 0, "min_bytes": 0, "topics": topics, **more}
        )

    await ask("from the start", topic_fields(main_topic, fetch_at(1)))
    await ask("from inside a batch", topic_fields(main_topic, fetch_at(4)))
    await ask("at the end", topic_fields(main_topic, fetch_at(6)))
    await ask("beyond the end", topic_fields(main_topic, fetch_at(7)))
    await ask("before the start", topic_fields(main_topic, fetch_at(0)))
    await ask("at -1", topic_fields(main_topic, fetch_at(-1)))
    await ask("an empty partition", topic_fields(empty, fetch_at(0)))
    await ask("waiting for what does not come", topic_fields(empty, fetch_at(0)), max_wait=10, min_bytes=1)
    await ask("beyond an empty one", topic_fields(empty, fetch_at(1)), max_wait=5000, min_bytes=1)
    await ask("read committed", topic_fields(main_topic, fetch_at(1)), isolation_level=1)
    await ask("isolation level 7", topic_fields(main_topic, fetch_at(1)), isolation_level=7)
    await ask("an unknown partition", topic_fields(main_topic, fetch_at(0, 9), fetch_at(4)))
    await ask("an unknown topic", topic_fields(session.unique_name("unknown"), fetch_at(0)), max_wait=5000, min_bytes=1)
    await ask("two partitions", topic_fields(main_topic, fetch_at(3), fetch_at(0, 1)))
    await ask("one byte of a partition", topic_fields(tall, fetch_at(0, partition_max_bytes=1)))
    await ask("one byte in all", topic_fields(tall, fetch_at(0)), max_bytes=1)
    await ask(
        "one byte in all, two topics",
        topic_fields(tall, fetch_at(0)),
        topic_fields(main_topic, fetch_at(1)),
        max_bytes=1,
    )
    await ask("6000 bytes", topic_fields(tall, fetch_at(0, partition_max_bytes=6000)))
    await ask("no topic")
    await ask(
        "a replica id that no broker has",
        topic_fields(main_topic, fetch_at(1)),
        replica_id=9,
        replica_state={"replica_id": 9},
    )
    if session.version >= 9:
        await ask("the leader's epoch", topic_fields(main_topic, fetch_at(1, current_leader_epoch=0)))
        await ask("an epoch to come", topic_fields(main_topic, fetch_at(1, current_leader_epoch=1)))
    if session.version >= 12:
        await ask("last fetched epoch", topic_fields(main_topic, fetch_at(4, last_fetched_epoch=0)))
        await ask("last fetched epoch to come", topic_fields(main_topic, fetch_at(4, last_fetched_epoch=3)))
        await ask("last fetched epoch, beyond its end", topic_fields(main_topic, fetch_at(9, last_fetched_epoch=0)))
        await ask("another cluster", topic_fields(main_topic, fetch_at(4)), cluster_id="another")
    if session.version >= 13:
        await ask(
            "an unknown and a known id",
            topic_fields(session.unique_name("unknown"), fetch_at(0)),
            topic_fields(main_topic, fetch_at(4)),
        )
        await ask("no id", {"topic_id": None, "partitions": [fetch_at(0)]})
    if session.version < 7:
        return
    made = await ask("a new session", topic_fields(main_topic, fetch_at(1), fetch_at(0, 1)), session_epoch=0)
    session_id = made.session_id
    await ask("nothing new in it", session_id=session_id, session_epoch=1)
    await ask("another offset in it", topic_fields(main_topic, fetch_at(4)), session_id=session_id, session_epoch=2)
    await ask("a wrong epoch", session_id=session_id, session_epoch=2)
    await ask("a wrong epoch ahead", session_id=session_id, session_epoch=9)
    await ask("a topic more", topic_fields(tall, fetch_at(5)), session_id=session_id, session_epoch=3)
    forgotten = {"topic": main_topic, "topic_id": session.ids[main_topic], "partitions": [0]}
    await ask("a partition less", forgotten_topics_data=[forgotten], session_id=session_id, session_epoch=4)
    await ask(
        "an unknown topic in it",
        topic_fields(session.unique_name("unknown"), fetch_at(0)),
        session_id=session_id,
        session_epoch=5,
    )
    await ask("and again", session_id=session_id, session_epoch=6)
    await ask("another session", session_id=12345, session_epoch=1)
    await ask("another session, to be closed", session_id=12345, session_epoch=-1)
    await ask("another session, to be made", topic_fields(main_topic, fetch_at(4)), session_id=12345, session_epoch=0)
    await ask("closed", topic_fields(main_topic, fetch_at(4)), session_id=session_id, session_epoch=-1)
    await ask("after it was closed", session_id=session_id, session_epoch=7)
    nothing = await ask("a new session of nothing", session_epoch=0)
    await ask("nothing in it", session_id=nothing.session_id, session_epoch=1)
    await ask("after nothing in it", session_id=nothing.session_id, session_epoch=2)
    await fetch_with_other_topic_naming(session, topic_fields(main_topic, fetch_at(4)))
    if session.version >= 12:
        await fetch_diverged_again(session, topic_fields(main_topic, fetch_at(9, last_fetched_epoch=0)))
    gone_soon = await session.create_topic("gone-soon")
    await fetch_deleted_topic(session, gone_soon, topic_fields(gone_soon, fetch_at(0)))
    await ask("no session, epoch 5", topic_fields(main_topic, fetch_at(4)), session_epoch=5)


async def fetch_diverged_again(session: ApiSession, wanted: dict[str, Any]) -> None:
    """Fetches twice in a session from beyond the end of an epoch."""
    fields: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 0}
    made = await session.send_case("where logs diverge", **fields, session_epoch=0, topics=[wanted])
    await session.send_case("where they still diverge", **fields, session_id=made.session_id, session_epoch=1)


async def fetch_deleted_topic(session: ApiSession, name: str, wanted: dict[str, Any]) -> None:
    """Fetches a topic that was deleted after the session began."""
    fields: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 0}
    made = await session.send("fetch", version=session.version, **fields, session_epoch=0, topics=[wanted])
    await session.send("delete_topics", topics=[{"name": name, "topic_id": None}], timeout=10_000)

    async def is_topic_unknown() -> bool:
        metadata = await session.send(
            "metadata", topics=[{"topic_id": None, "name": name}], allow_auto_topic_creation=False
        )
        return bool(metadata.topics[0].error_code)

    await eventually_async(is_topic_unknown)
    await session.send_case("a topic that was deleted since", **fields, session_id=made.session_id, session_epoch=1)


async def fetch_with_other_topic_naming(session: ApiSession, wanted: dict[str, Any]) -> None:
    """Fetches by ids in a session with topic names, or the other way round."""
    fields: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "session_epoch": 0, "topics": [wanted]}
    made = await session.send("fetch", version=12 if session.version >= 13 else 13, **fields)
    await session.send_case(
        "topics named in the other way", **{**fields, "session_id": made.session_id, "session_epoch": 1}
    )


async def list_offsets(session: ApiSession) -> None:
    topic = await session.create_topic(
        "there",
        2,
        [
            encode_values(b"0", b"1", b"2"),
            encode_values(b"3", at_ms=START_MS + 100),
            encode_values(b"4", at_ms=START_MS + 50),
        ],
    )
    await session.send(
        "delete_records", topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}], timeout=9000
    )

    async def ask(case: str, timestamp: int, index: int = 0, name: str = topic, **more: Any) -> None:
        epoch = more.pop("current_leader_epoch", -1)
        wanted = {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": epoch}
        topics = [{"name": name, "partitions": [wanted]}]
        await session.send_case(case, **{"replica_id": -1, "topics": topics, "timeout": 10_000, **more})

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
    await ask("an unknown special timestamp", -7)
    await ask("time 0", 0)
    await ask("a time inside a batch", START_MS + 1)
    await ask("between batches", START_MS + 10)
    await ask("the largest time", START_MS + 100)
    await ask("after the largest time", START_MS + 101)
    await ask("time 0 of an empty partition", 0, 1)
    await ask("read committed", -1, isolation_level=1)
    await ask("time, read committed", START_MS + 1, isolation_level=1)
    await ask("unknown partition", -1, 9)
    await ask("unknown topic", -1, name=session.unique_name("unknown"))
    await ask("replica -2", -1, replica_id=-2)
    await ask("the leader's epoch", -1, current_leader_epoch=0)
    await ask("an epoch to come", -1, current_leader_epoch=5)
    twice = [{"partition_index": 0, "timestamp": -1}, {"partition_index": 0, "timestamp": -2}]
    await session.send_case("one partition twice", replica_id=-1, topics=[{"name": topic, "partitions": twice}])
    await session.send_case("no topics", replica_id=-1, topics=())


async def offset_for_leader_epoch(session: ApiSession) -> None:
    topic = await session.create_topic("there", 2, [encode_values(b"0", b"1", b"2")])

    async def ask(
        case: str, epoch: int, index: int = 0, name: str = topic, current: int = -1, replica: int = -1
    ) -> None:
        wanted = {"partition": index, "leader_epoch": epoch, "current_leader_epoch": current}
        await session.send_case(case, replica_id=replica, topics=[{"topic": name, "partitions": [wanted]}])

    await ask("epoch 0", 0)
    await ask("epoch 0 of an empty partition", 0, 1)
    await ask("epoch 5", 5)
    await ask("epoch -1", -1)
    await ask("current epoch 0", 0, current=0)
    await ask("current epoch 5", 0, current=5)
    await ask("unknown partition", 0, 9)
    await ask("unknown topic", 0, name=session.unique_name("unknown"))
    await ask("replica -2", 0, replica=-2)


RECORD_CASES = (fetch, list_offsets, offset_for_leader_epoch)
