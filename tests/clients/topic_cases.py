"""Requests about topics and the cluster. Each function is named after an API and runs in
each version.
"""

from typing import Any
from uuid import UUID

from tests.clients.api_session import ApiSession, encode_values
from tests.waiting import eventually_async

UNKNOWN_ID = UUID("12345678-1234-5678-1234-567812345678")
TOPIC, BROKER, LOGGER, GROUP, METRICS = 2, 4, 8, 32, 16


async def metadata(session: ApiSession) -> None:
    topic = await session.create_topic("there", 2)

    def topic_fields(*names: str) -> dict[str, Any]:
        return {"topics": [{"topic_id": None, "name": name} for name in names], "allow_auto_topic_creation": False}

    await session.send_case("all topics", topics=None if session.version else (), only_own=True)
    await session.send_case("no topic", topics=() if session.version else [{"name": topic}])
    await session.send_case("a topic", **topic_fields(topic))
    await session.send_case("the same topic twice", **topic_fields(topic, topic))
    await session.send_case("rights", **topic_fields(topic), include_topic_authorized_operations=True)
    await session.send_case("rights of the cluster", **topic_fields(topic), include_cluster_authorized_operations=True)
    if session.version >= 4:
        await session.send_case("unknown, not to be made", **topic_fields(session.unique_name("unknown")))
        await session.send_case(
            "an existing and an unknown topic", **topic_fields(topic, session.unique_name("unknown"))
        )
    await session.send_case("unknown, to be made", topics=[{"topic_id": None, "name": session.unique_name("made")}])
    await session.send_case("a bad name", topics=[{"topic_id": None, "name": "a bad/name"}])
    await session.send_case("a name too long", topics=[{"topic_id": None, "name": "x" * 250}])
    await session.send_case("an empty name", topics=[{"topic_id": None, "name": ""}])
    await session.send_case("the name ..", topics=[{"topic_id": None, "name": ".."}])
    if session.version >= 10:
        await session.send_case("by id", topics=[{"topic_id": session.ids[topic], "name": None}])
        await session.send_case("by id and name", topics=[{"topic_id": session.ids[topic], "name": topic}])
        await session.send_case("unknown id", topics=[{"topic_id": UNKNOWN_ID, "name": None}])
        await session.send_case("neither id nor name", topics=[{"topic_id": None, "name": None}])
        await session.send_case(
            "ids and names mixed",
            topics=[{"topic_id": session.ids[topic], "name": None}, {"topic_id": None, "name": topic}],
        )


async def create_topics(session: ApiSession) -> None:
    def topic_fields(
        suffix: str,
        partitions: int = 1,
        replicas: int = 1,
        assigned: Any = (),
        full_name: str | None = None,
        **configs: Any,
    ) -> dict[str, Any]:
        return {
            "name": session.unique_name(suffix) if full_name is None else full_name,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "assignments": [{"partition_index": index, "broker_ids": brokers} for index, brokers in assigned],
            "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
        }

    async def ask(case: str, *topics: dict[str, Any], **more: Any) -> None:
        await session.send_case(case, topics=topics, timeout=10_000, **more)

    await ask("a topic", topic_fields("a", 2))
    await ask("the same again", topic_fields("a", 2))
    await ask("only validated", topic_fields("b"), validate_only=True)
    await ask("only validated, exists already", topic_fields("a"), validate_only=True)
    await ask("only validated, bad", topic_fields("b", 0), validate_only=True)
    await ask("twice in one request", topic_fields("c"), topic_fields("c"))
    await ask("one good, one bad", topic_fields("d"), topic_fields("e", 0))
    await ask("default numbers", topic_fields("f", -1, -1))
    await ask("no partitions", topic_fields("g", 0))
    await ask("fewer than none", topic_fields("g", -2))
    await ask("no replicas", topic_fields("g", 1, 0))
    await ask("replicas -2", topic_fields("g", 1, -2))
    await ask("more replicas than brokers", topic_fields("g", 1, 2))
    await ask("a bad name", topic_fields("", full_name="a bad name"))
    await ask("an empty name", topic_fields("", full_name=""))
    await ask("the name .", topic_fields("", full_name="."))
    await ask("a name too long", topic_fields("", full_name="x" * 250))
    await ask("collides", topic_fields("x.y"), topic_fields("x_y"))
    await ask("p.q", topic_fields("p.q"))
    await ask("collides with an existing topic", topic_fields("p_q"))
    await session.send("find_coordinator", coordinator_keys=[session.unique_name("group")])
    await ask("an internal topic", topic_fields("", full_name="__consumer_offsets"), validate_only=True)
    await ask("the metadata log", topic_fields("", full_name="__cluster_metadata"))
    await ask("assigned", topic_fields("h", -1, -1, [(0, [1]), (1, [1])]))
    await ask("assigned and counted", topic_fields("i", 1, 1, [(0, [1])]))
    await ask("assigned and counted replicas", topic_fields("i", -1, 1, [(0, [1])]))
    await ask("assigned with a gap", topic_fields("i", -1, -1, [(0, [1]), (2, [1])]))
    await ask("assigned from 1", topic_fields("i", -1, -1, [(1, [1])]))
    await ask("assigned twice", topic_fields("i", -1, -1, [(0, [1]), (0, [1])]))
    await ask("assigned to nobody", topic_fields("i", -1, -1, [(0, [])]))
    await ask("assigned to one broker twice", topic_fields("i", -1, -1, [(0, [1, 1])]))
    await ask("assigned to an unknown broker", topic_fields("i", -1, -1, [(0, [99])]))
    await ask("assigned with unequal factors", topic_fields("i", -1, -1, [(0, [1]), (1, [1, 1])]))
    await ask("with configs", topic_fields("j", cleanup_policy="compact", retention_ms="1000"))
    await ask("unknown config", topic_fields("k", no_such_thing="1"))
    await ask("bad number", topic_fields("k", retention_ms="soon"))
    await ask("number too small", topic_fields("k", retention_ms="-2"))
    await ask("bad word", topic_fields("k", cleanup_policy="shred"))
    await ask("no value", topic_fields("k", retention_ms=None))
    await ask("bad number for an existing topic", topic_fields("a", retention_ms="soon"))
    await ask("contradicting configs", topic_fields("k", min_compaction_lag_ms="10", max_compaction_lag_ms="5"))
    await ask("an old config", topic_fields("k", message_format_version="3.0"))
    await ask("no topics")


async def delete_topics(session: ApiSession) -> None:
    async def ask(case: str, *names: str) -> None:
        await session.send_case(
            case, timeout=10_000, topic_names=names, topics=[{"name": name, "topic_id": None} for name in names]
        )

    first, second, third = [await session.create_topic(suffix) for suffix in ("a", "b", "c")]
    await ask("a topic", first)
    await ask("the same again", first)
    await ask("unknown", session.unique_name("unknown"))
    await ask("one existing, one unknown", second, session.unique_name("unknown"))
    await ask("the same twice", third, third)
    await ask("a bad name", "a bad name")
    await ask("an empty name", "")
    await ask("none")
    if session.version >= 6:
        fourth = await session.create_topic("d")

        async def ask_by_name_or_id(case: str, *topics: tuple[str | None, UUID | None]) -> None:
            await session.send_case(
                case, timeout=10_000, topics=[{"name": name, "topic_id": topic_id} for name, topic_id in topics]
            )

        await ask_by_name_or_id("unknown id", (None, UNKNOWN_ID))
        await ask_by_name_or_id("neither name nor id", (None, None))
        await ask_by_name_or_id("name and id", (fourth, session.ids[fourth]))
        await ask_by_name_or_id("name and unknown id", (fourth, UNKNOWN_ID))
        await ask_by_name_or_id("by name and by id", (fourth, None), (None, session.ids[fourth]))
        fifth = await session.create_topic("e")
        await ask_by_name_or_id("by id", (None, session.ids[fifth]))
        await ask_by_name_or_id("by id again", (None, session.ids[fifth]))


async def create_partitions(session: ApiSession) -> None:
    topic = await session.create_topic("there", 2)

    async def ask(case: str, name: str, count: int, assigned: Any = None, validate_only: bool = False) -> None:
        assignments = None if assigned is None else [{"broker_ids": brokers} for brokers in assigned]
        wanted = {"name": name, "count": count, "assignments": assignments}
        await session.send_case(case, topics=[wanted], timeout=10_000, validate_only=validate_only)

    await ask("as many as there are", topic, 2)
    await ask("fewer", topic, 1)
    await ask("none", topic, 0)
    await ask("less than none", topic, -1)
    await ask("unknown topic", session.unique_name("unknown"), 3)
    await ask("a bad name", "a bad name", 3)
    await ask("only validated", topic, 3, validate_only=True)
    await ask("more", topic, 3)
    await ask("assigned", topic, 4, [[1]])
    await ask("assigned nothing", topic, 5, [])
    await ask("assigned too many", topic, 5, [[1], [1]])
    await ask("assigned to an unknown broker", topic, 5, [[99]])
    await ask("assigned to nobody", topic, 5, [[]])
    await ask("assigned to one broker twice", topic, 5, [[1, 1]])
    twice = [{"name": topic, "count": count, "assignments": None} for count in (5, 6)]
    await session.send_case("twice in one request", topics=twice, timeout=10_000, validate_only=False)
    await session.send_case("no topics", topics=(), timeout=10_000, validate_only=False)


async def delete_records(session: ApiSession) -> None:
    topic = await session.create_topic("there", 2, [encode_values(b"0", b"1", b"2"), encode_values(b"3", b"4")])

    async def ask(case: str, name: str, *wanted: tuple[int, int]) -> None:
        partitions = [{"partition_index": index, "offset": offset} for index, offset in wanted]
        await session.send_case(case, topics=[{"name": name, "partitions": partitions}], timeout=10_000)

    await ask("before 2", topic, (0, 2))
    await ask("before 1 then", topic, (0, 1))
    await ask("beyond the end", topic, (0, 6))
    await ask("before -2", topic, (0, -2))
    await ask("all", topic, (0, -1))
    await ask("of an empty partition", topic, (1, -1))
    await ask("of an empty partition, before 0", topic, (1, 0))
    await ask("unknown partition", topic, (9, 0), (0, 5))
    await ask("unknown topic", session.unique_name("unknown"), (0, 0))
    compacted = await session.create_topic("compacted", 1, [encode_values(b"0")], cleanup_policy="compact")
    await ask("of a compacted topic", compacted, (0, 1))
    both = await session.create_topic("both", 1, [encode_values(b"0")], cleanup_policy="compact,delete")
    await ask("of a topic of both policies", both, (0, 1))


async def describe_cluster(session: ApiSession) -> None:
    await session.send_case("brokers")
    await session.send_case("with rights", include_cluster_authorized_operations=True)
    await session.send_case("with fenced brokers", include_fenced_brokers=True)
    if session.version >= 1:
        await session.send_case("an unknown kind of endpoint", endpoint_type=9)
        await session.send_case("controllers", endpoint_type=2)


async def describe_log_dirs(session: ApiSession) -> None:
    topic = await session.create_topic("there", 2, [encode_values(b"0", b"1", b"2")])
    await session.send_case("a topic", topics=[{"topic": topic, "partitions": [0, 1]}])
    await session.send_case("a partition", topics=[{"topic": topic, "partitions": [0]}])
    await session.send_case("an unknown partition", topics=[{"topic": topic, "partitions": [9]}])
    await session.send_case("an unknown topic", topics=[{"topic": session.unique_name("unknown"), "partitions": [0]}])
    await session.send_case("nothing", topics=())
    await session.send_case("everything", topics=None, only_own=True)


async def alter_replica_log_dirs(session: ApiSession) -> None:
    existing = await session.create_topic("there", 2, [encode_values(b"0", b"1", b"2")])
    described = await session.send("describe_log_dirs", topics=None)
    home = described.results[0].log_dir

    async def ask(case: str, path: str, topic: str, *partitions: int) -> None:
        await session.send_case(case, dirs=[{"path": path, "topics": [{"name": topic, "partitions": partitions}]}])

    await ask("to where they are", home, existing, 0, 1)
    await ask("an unknown directory", "/no/such/directory", existing, 0)
    await ask("a relative path", home.lstrip("/"), existing, 0)
    await ask("an unknown partition", home, existing, 0, 9)
    await ask("an unknown topic", home, session.unique_name("unknown"), 0)
    await ask("a topic whose name is too long", home, "x" * 240, 0)
    await ask("no partition", home, existing)
    await session.send_case("no directory", dirs=())


async def describe_topic_partitions(session: ApiSession) -> None:
    first, second = await session.create_topic("a", 3), await session.create_topic("b", 2)

    async def ask(case: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
        topics = [{"name": name} for name in names]
        await session.send_case(case, topics=topics, response_partition_limit=limit, cursor=at, only_own=not names)

    await ask("two topics", second, first)
    await ask("the same twice", first, first)
    await ask("unknown", session.unique_name("unknown"), first)
    await ask("a bad name", "a bad name")
    await ask("one partition", first, second, limit=1)
    await ask("three partitions", first, second, limit=3)
    await ask("four partitions", first, second, limit=4)
    await ask("three partitions, and an unknown topic after them", first, session.unique_name("unknown"), limit=3)
    await ask("limit of 0", first, limit=0)
    await ask("limit of -1", first, limit=-1)
    await ask("from a cursor", first, second, limit=2, cursor=(first, 2))
    await ask("from a cursor in the second", first, second, cursor=(second, 1))
    await ask("from a cursor beyond the end", first, second, cursor=(first, 9))
    await ask("from a cursor of an unknown topic", first, second, cursor=(session.unique_name("aa"), 0))
    await ask("from a cursor after all", first, cursor=(session.unique_name("z"), 0))
    await ask("from a negative cursor", first, second, cursor=(first, -1))


async def find_coordinator(session: ApiSession) -> None:
    async def ask(case: str, key_type: int, *keys: str) -> None:
        await session.send_case(case, key_type=key_type, key=keys[0] if keys else "", coordinator_keys=keys)

    async def has_coordinator() -> bool:
        return (
            not (await session.send("find_coordinator", coordinator_keys=[session.unique_name("x")]))
            .coordinators[0]
            .error_code
        )

    await eventually_async(has_coordinator)  # the first group of a cluster creates __consumer_offsets
    await ask("of a group", 0, session.unique_name("group"))
    await ask("of a group without a name", 0, "")
    if session.version >= 1:
        await ask("of an unknown kind", 9, session.unique_name("group"))
        await ask("of a share group with a bad key", 2, "nonsense")
    if session.version >= 4:
        await ask("of several groups", 0, session.unique_name("a"), session.unique_name("b"), session.unique_name("a"))
        await ask("of none", 0)


TOPIC_CASES = (
    metadata,
    create_topics,
    delete_topics,
    create_partitions,
    delete_records,
    describe_cluster,
    describe_log_dirs,
    alter_replica_log_dirs,
    describe_topic_partitions,
    find_coordinator,
)
