"""Requests that read records in share groups (KIP-932): share sessions, deliveries and
acknowledgements. Members need not have joined their group.

Apache Kafka loads the state of a share-partition after the response to the first fetch, so cases
begin when it is loaded. Kafka does not return the error of a partition that is not in the session
yet.
"""

from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from ottla_broker.wire.records import iter_records
from tests.clients.api_session import ApiSession, encode_values, merge_spans
from tests.clients.group_cases import create_stable_group, wait_for_coordinators
from tests.clients.share_group_cases import FIRST, SECOND, join, leave, set_group_configs
from tests.clients.share_state_cases import NO_SUCH_TOPIC
from tests.clients.transaction_cases import add_partitions, create_producer, end_transaction
from tests.waiting import eventually_async

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOADS_WITHIN_MS = 300
Acknowledged = tuple[int, int, int] | tuple[int, int, list[int]]
"""First and last offset, and one type for all of them or one for each."""


class SharePartition(NamedTuple):
    group: str
    topic: UUID | None
    partition: int = 0


def topic_fields(at: SharePartition, *acknowledged: Acknowledged) -> list[dict[str, Any]]:
    batches = [
        {"first_offset": first, "last_offset": last, "acknowledge_types": [kind] if isinstance(kind, int) else kind}
        for first, last, kind in acknowledged
    ]
    return [
        {
            "topic_id": at.topic,
            "partitions": [{"partition_index": at.partition, "acknowledgement_batches": batches}],
        }
    ]


def fetch_fields(
    at: SharePartition, epoch: int, *acknowledged: Acknowledged, member: str = FIRST, **more: Any
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "group_id": at.group,
        "member_id": member,
        "share_session_epoch": epoch,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        "topics": topic_fields(at, *acknowledged),
        "forgotten_topics_data": [],
    }
    return {**fields, **more}


def acknowledge_fields(
    at: SharePartition, epoch: int, *acknowledged: Acknowledged, member: str = FIRST, **more: Any
) -> dict[str, Any]:
    fields = {"group_id": at.group, "member_id": member, "share_session_epoch": epoch}
    return {**fields, "topics": topic_fields(at, *acknowledged), **more}


async def create_share_partition(session: ApiSession, suffix: str, *batches: bytes, **configs: str) -> SharePartition:
    """Creates a topic with these batches, and a group that begins at the topic's start and whose
    state is loaded.
    """
    topic = await session.create_topic(suffix)
    at = SharePartition(session.unique_name(f"shares of {suffix}"), session.ids[topic])
    await set_group_configs(session, at.group, share_auto_offset_reset="earliest", **configs)
    await join(session, at.group, [topic])
    for epoch in (0, -1):
        answer = await session.send("share_fetch", **fetch_fields(at, epoch, max_wait=LOADS_WITHIN_MS))
        assert answer.error_code is ErrorCode.none, answer
    await leave(session, at.group)
    for records in batches:
        await session.produce(topic, records)
    return at


async def release(session: ApiSession, at: SharePartition, epoch: int, first: int, last: int) -> None:
    """Releases records, in a request of its own: whether a fetch that releases records delivers
    them again at once is the broker's choice."""
    answer = await session.send("share_acknowledge", **acknowledge_fields(at, epoch, (first, last, RELEASE)))
    codes = {partition.error_code for topic in answer.responses for partition in topic.partitions}
    assert (answer.error_code, codes) == (ErrorCode.none, {ErrorCode.none}), answer


async def wait_until_released(session: ApiSession, at: SharePartition, count: int) -> None:
    """Stores the records that the second member gets, once there are `count`: Kafka releases those
    of a closed session after the response.
    """
    found: list[Any] = []

    async def are_released() -> bool:
        answer = await session.send("share_fetch", version=1, **fetch_fields(at, 0, member=SECOND))
        found.extend(span for topic in answer.responses for one in topic.partitions for span in one.acquired_records)
        return sum(int(span.last_offset) - int(span.first_offset) + 1 for span in found) >= count

    await eventually_async(are_released)
    session.responses["what was not acknowledged is delivered again"] = merge_spans(found)


async def send_session_cases(session: ApiSession, at: SharePartition) -> None:
    async def ask(case: str, epoch: int, *acknowledged: Acknowledged, **more: Any) -> None:
        await session.send_case(case, **fetch_fields(at, epoch, *acknowledged, **more))

    await ask("no session", 1)
    await ask("no session to close", -1, topics=[])
    await ask("an epoch below all valid ones", -2)
    await ask("acknowledging before a session", 0, (0, 0, ACCEPT))
    await ask("without a group", 0, group_id="")
    await ask("null group", 0, group_id=None)
    await ask("without a member", 0, member_id="")
    await ask("null member", 0, member_id=None)
    await ask("a member id that is no UUID", 0, member_id="somebody", topics=[])
    await ask("an empty session", 0, topics=[])
    await ask("an unknown topic is added", 1, topics=topic_fields(at._replace(topic=NO_SUCH_TOPIC)))
    await ask("and stays in the session", 2, topics=[])
    forgotten = [{"topic_id": NO_SUCH_TOPIC, "partitions": [0]}]
    await ask("it is forgotten", 3, topics=[], forgotten_topics_data=forgotten)
    await ask("an unknown partition is added", 4, topics=topic_fields(at._replace(partition=9)))
    unknown = [{"topic_id": at.topic, "partitions": [9]}]
    await ask("it is forgotten too", 5, topics=[], forgotten_topics_data=unknown)
    await ask("an epoch ahead", 9, topics=[])
    await ask("an epoch behind", 2, topics=[])
    await ask("the session closes", -1, topics=[])
    await ask("after the end", 6, topics=[])


async def share_fetch(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    batches = [encode_values(b"a", b"b", b"c"), encode_values(b"d", b"e"), encode_values(b"f")]
    at = await create_share_partition(session, "fetched", *batches)
    await send_session_cases(session, at)

    async def ask(case: str, epoch: int, *acknowledged: Acknowledged, **more: Any) -> None:
        await session.send_case(case, **fetch_fields(at, epoch, *acknowledged, **more))

    await ask("two records", 0, max_records=2)
    await ask("the rest", 1)
    await ask("nothing is left", 2)
    await ask("another member gets nothing", 0, member=SECOND)
    await ask("records that it does not have", 1, (0, 1, ACCEPT), member=SECOND)
    await ask("two are accepted", 3, (0, 1, ACCEPT))
    await release(session, at, 4, 2, 3)
    await ask("released ones are delivered again", 5)
    await ask("a type for each", 6, (2, 4, [ACCEPT, ACCEPT, REJECT]))
    await ask("acknowledged twice", 7, (2, 2, ACCEPT))
    await ask("never delivered", 8, (50, 51, ACCEPT))
    await ask("too few types", 9, (3, 5, [ACCEPT, ACCEPT]))
    await ask("no type", 10, (5, 5, []))
    await ask("an unknown type", 11, (5, 5, 9))
    await ask("backwards", 12, (5, 3, ACCEPT))
    await ask("the session opens again", 0)
    await ask("what was acquired before", 1, (5, 5, ACCEPT))
    await session.produce(session.unique_name("fetched"), encode_values(b"g", b"h"))
    await ask("later records", 2)
    await ask("closing acknowledges", -1, (6, 6, ACCEPT))
    await wait_until_released(session, at, 1)
    await ask("closing fetches nothing", -1, member=SECOND)
    await send_sized_cases(session)
    await send_isolation_cases(session)
    empty = await create_share_partition(session, "empty")
    await session.send_case("an empty log", **fetch_fields(empty, 0))
    classic = session.unique_name("classic")
    await create_stable_group(session, classic)
    await session.send_case("a classic group", **fetch_fields(at._replace(group=classic), 0, topics=[]))


async def send_sized_cases(session: ApiSession) -> None:
    """Limits of sizes and counts, and the limit of deliveries."""
    batches = [encode_values(b"%d" % number * 100, b"x") for number in range(4)]
    at = await create_share_partition(session, "sized", *batches, share_delivery_count_limit="2")

    async def ask(case: str, epoch: int, *acknowledged: Acknowledged, **more: Any) -> None:
        await session.send_case(f"sized: {case}", **fetch_fields(at, epoch, *acknowledged, **more))

    await ask("one byte", 0, max_bytes=1)
    await ask("no record wanted", 1, max_records=0)
    await ask("one record", 2, max_records=1)
    await ask("batches of one", 3, max_records=2, batch_size=1)
    await ask("more bytes than there are", 4, min_bytes=100_000)
    await release(session, at, 5, 0, 1)
    await ask("the second delivery", 6)
    await release(session, at, 7, 0, 1)
    await ask("no third delivery", 8)
    if session.version < 2:
        return
    at = await create_share_partition(session, "exact", *batches)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0}
    await ask("exactly one record", 0, max_records=1, share_acquire_mode=1)
    await ask("exactly two", 1, max_records=2, share_acquire_mode=1)
    await ask("renewed", 2, (0, 0, RENEW), is_renew_ack=True, **nothing)
    await ask("renewed, with a fetch", 3, (0, 0, RENEW), is_renew_ack=True)
    await ask("renewed unannounced", 3, (0, 0, RENEW), **nothing)
    await ask("an unknown acquire mode", 4, share_acquire_mode=7)


async def send_isolation_cases(session: ApiSession) -> None:
    """Records of a committed, an aborted and an open transaction."""
    for isolation in ("read_committed", "read_uncommitted"):
        topic = session.unique_name(isolation)
        at = await create_share_partition(session, isolation, encode_values(b"plain"), share_isolation_level=isolation)
        for name, outcome in (("committed", True), ("aborted", False), ("open", None)):
            producer = await create_producer(session, f"{isolation} {name}")
            await add_partitions(session, producer, topic, 0)
            data = encode_values(
                name.encode(),
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=0,
                transactional=True,
            )
            await session.produce(topic, data, producer.transactional_id)
            if outcome is not None:
                await end_transaction(session, producer, committed=outcome)
        session.responses[isolation] = sorted(await read_values(session, at))


async def read_values(session: ApiSession, at: SharePartition) -> list[str]:
    """Values of the data records that a member acquires, from several fetches: brokers may choose
    how many batches each returns. Kafka delivers markers of transactions too, which its clients
    skip."""
    found: list[str] = []
    for epoch in range(4):
        answer = await session.send("share_fetch", **fetch_fields(at, epoch))
        for partition in (partition for topic in answer.responses for partition in topic.partitions):
            spans = partition.acquired_records
            acquired = {offset for span in spans for offset in range(span.first_offset, span.last_offset + 1)}
            records = iter_records(partition.records or b"")
            found += [
                f"{record.offset} {(record.value or b'').decode()}"
                for header, record in records
                if record.offset in acquired and not header.is_control
            ]
    return found


async def share_acknowledge(session: ApiSession) -> None:
    await wait_for_coordinators(session)
    at = await create_share_partition(session, "acknowledged", encode_values(*[b"v"] * 12))

    async def ask(case: str, epoch: int, *acknowledged: Acknowledged, **more: Any) -> None:
        await session.send_case(case, **acknowledge_fields(at, epoch, *acknowledged, **more))

    await ask("no session", 1, (0, 0, ACCEPT))
    await ask("an initial epoch", 0, (0, 0, ACCEPT))
    await session.send("share_fetch", **fetch_fields(at, 0))
    await ask("an initial epoch in a session", 0, (0, 0, ACCEPT))
    await ask("accepted", 1, (0, 0, ACCEPT))
    await ask("accepted again", 2, (0, 0, ACCEPT))
    await ask("three at once", 3, (1, 1, RELEASE), (2, 2, REJECT), (3, 3, GAP))
    await ask("a type for each", 4, (4, 6, [ACCEPT, GAP, RELEASE]))
    await ask("overlapping", 5, (7, 8, ACCEPT), (8, 9, ACCEPT))
    await ask("descending", 6, (9, 9, ACCEPT), (7, 7, ACCEPT))
    await ask("backwards", 7, (8, 7, ACCEPT))
    await ask("one good, one bad", 8, (7, 7, ACCEPT), (50, 50, ACCEPT))
    await ask("no type", 9, (7, 7, []))
    await ask("too many types", 10, (7, 7, [ACCEPT, ACCEPT]))
    await ask("an unknown type", 11, (7, 7, 5))
    await ask("a type below all valid ones", 12, (7, 7, -1))
    await ask("of another member", 1, (7, 7, ACCEPT), member=SECOND)
    await ask("nothing", 13, topics=[])
    await ask("no batch", 14)
    unknown, missing = at._replace(partition=9), at._replace(topic=NO_SUCH_TOPIC)
    await ask("an unknown partition", 15, topics=topic_fields(unknown, (0, 0, ACCEPT)))
    await ask("an unknown topic", 16, topics=topic_fields(missing, (0, 0, ACCEPT)))
    await ask("an epoch ahead", 99, (7, 7, ACCEPT))
    await ask("an epoch behind", 3, (7, 7, ACCEPT))
    await ask("null group", 17, (7, 7, ACCEPT), group_id=None)
    await ask("without a member", 17, (7, 7, ACCEPT), member_id="")
    if session.version >= 2:
        await ask("renewed unannounced", 17, (7, 7, RENEW))
        await ask("renewed", 17, (7, 7, RENEW), is_renew_ack=True)
        await ask("renewed and accepted", 18, (7, 8, [RENEW, ACCEPT]), is_renew_ack=True)
        await ask("announced, and none renewed", 19, (9, 9, ACCEPT), is_renew_ack=True)
    await ask("closing", -1, (7, 7, ACCEPT))
    await ask("after the end", -1, topics=[])
    await wait_until_released(session, at, 6 if session.version < 2 else 4)


SHARE_RECORD_CASES = (share_fetch, share_acknowledge)
