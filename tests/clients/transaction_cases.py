"""Requests of transactions. Each function of `TRANSACTION_CASES` is named after an API."""

from typing import Any, NamedTuple

from ottla_broker.wire.errors import ErrorCode
from tests.clients.api_session import ApiSession, encode_values
from tests.waiting import eventually_async

OFFSETS_TOPIC = "__consumer_offsets"
RETRIED = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


class Producer(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int


async def wait_for_coordinator(session: ApiSession, key: str, key_type: int) -> None:
    """Returns when the coordinator is found, after the creation of its topic if that is missing."""

    async def is_found() -> bool:
        found = await session.send("find_coordinator", key_type=key_type, coordinator_keys=(key,))
        return found.coordinators[0].error_code is ErrorCode.none

    await eventually_async(is_found)


async def create_producer(session: ApiSession, suffix: str = "tx") -> Producer:
    """Creates a producer with a new transactional id, once the coordinator serves that id."""
    transactional_id = session.unique_name(suffix)
    await wait_for_coordinator(session, transactional_id, 1)
    found: list[Any] = []

    async def is_initialized() -> bool:
        fields: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
        answer = await session.send("init_producer_id", version=4, producer_id=-1, producer_epoch=-1, **fields)
        found[:] = [answer]
        assert answer.error_code in RETRIED | {ErrorCode.none}, answer
        return answer.error_code is ErrorCode.none

    await eventually_async(is_initialized)
    return Producer(transactional_id, int(found[0].producer_id), int(found[0].producer_epoch))


async def add_partitions(session: ApiSession, producer: Producer, topic: str, *partitions: int) -> None:
    """Adds partitions to the producer's transaction, as a client of transaction version 1."""

    async def is_added() -> bool:
        answer = await session.send("add_partitions_to_txn", version=3, **adding_fields(producer, (topic, partitions)))
        (code, *_) = (one.partition_error_code for one in answer.results_by_topic_v3_and_below[0].results_by_partition)
        assert code in RETRIED | {ErrorCode.none}, answer
        return code is ErrorCode.none

    await eventually_async(is_added)


def adding_fields(
    producer: Producer, *topics: tuple[str, tuple[int, ...]], verify_only: bool = False
) -> dict[str, Any]:
    """Fields of AddPartitionsToTxn in every version."""
    named = [{"name": name, "partitions": partitions} for name, partitions in topics]
    transaction = {**producer._asdict(), "verify_only": verify_only, "topics": named}
    return {
        "v3_and_below_transactional_id": producer.transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": named,
        "transactions": [transaction],
    }


async def end_transaction(session: ApiSession, producer: Producer, *, committed: bool) -> None:
    """Ends the transaction as a client of transaction version 1; returns when it is completed."""
    answer = await session.send("end_txn", version=4, committed=committed, **producer._asdict())
    assert answer.error_code is ErrorCode.none, answer
    await wait_until_completed(session, producer)


async def wait_until_completed(session: ApiSession, producer: Producer) -> None:
    async def is_completed() -> bool:
        answer = await session.send("describe_transactions", transactional_ids=(producer.transactional_id,))
        return answer.transaction_states[0].transaction_state in ("CompleteCommit", "CompleteAbort")

    await eventually_async(is_completed)


async def init_producer_id_in_two_phases(session: ApiSession) -> None:
    """Two-phase commit (KIP-939), in the versions that have it."""
    producer = await create_producer(session, "known")
    known = {**producer._asdict(), "transaction_timeout": 60_000}
    fields: dict[str, Any] = {"producer_id": -1, "producer_epoch": -1, "transaction_timeout": 60_000}
    fields["transactional_id"] = session.unique_name("two phases")
    await wait_for_coordinator(session, fields["transactional_id"], 1)
    flags: list[dict[str, Any]] = [
        {"enable2_pc": in_two_phases, "keep_prepared_txn": keeps}
        for in_two_phases in (False, True)
        for keeps in (False, True)
    ]
    for chosen in flags:
        case = ", ".join(f"{name} {value}" for name, value in chosen.items())
        await session.send_case(case, **fields, **chosen)
        await session.send_case(f"{case}, no timeout", **{**fields, "transaction_timeout": 0}, **chosen)
        await session.send_case(f"{case}, a long timeout", **{**fields, "transaction_timeout": 2**31 - 1}, **chosen)
        await session.send_case(f"{case}, without transactional id", **{**fields, "transactional_id": None}, **chosen)
        await session.send_case(f"{case}, an empty transactional id", **{**fields, "transactional_id": ""}, **chosen)
        await session.send_case(f"{case}, a known producer", **known, **chosen)


async def add_partitions_to_txn(session: ApiSession) -> None:
    topic = await session.create_topic("there", 3)
    producer = await create_producer(session)

    async def ask(case: str, sender: Producer, *topics: tuple[str, tuple[int, ...]], **more: Any) -> None:
        await session.send_case(case, **adding_fields(sender, *topics, **more))

    if session.version >= 4:
        await ask("verified, of none", producer, (topic, (0,)), verify_only=True)
    await ask("two partitions", producer, (topic, (0, 1)))
    await ask("again", producer, (topic, (0, 1)))
    if session.version >= 4:
        await ask("verified", producer, (topic, (0, 1)), verify_only=True)
        await ask("verified, one not in the transaction", producer, (topic, (0, 2)), verify_only=True)
        await ask("verified, another epoch", producer._replace(producer_epoch=9), (topic, (0,)), verify_only=True)
        await ask("verified, another id", producer._replace(producer_id=1 << 40), (topic, (0,)), verify_only=True)
        unknown = producer._replace(transactional_id=session.unique_name("none"))
        await ask("verified, unknown", unknown, (topic, (0,)), verify_only=True)
    await ask("an unknown topic", producer, (topic, (0,)), (session.unique_name("unknown"), (0,)))
    await ask("an unknown partition", producer, (topic, (0, 9)))
    await ask("an older epoch", producer._replace(producer_epoch=-1), (topic, (0,)))
    await ask("a later epoch", producer._replace(producer_epoch=9), (topic, (0,)))
    await ask("another producer id", producer._replace(producer_id=1 << 40), (topic, (0,)))
    await ask("an unknown id", producer._replace(transactional_id=session.unique_name("none")), (topic, (0,)))
    await ask("an empty id", producer._replace(transactional_id=""), (topic, (0,)))
    await ask("no topic", producer)
    await end_transaction(session, producer, committed=True)
    if session.version < 4:
        await ask("after the end", producer, (topic, (2,)))


async def add_offsets_to_txn(session: ApiSession) -> None:
    producer = await create_producer(session)
    group = session.unique_name("group")
    await wait_for_coordinator(session, group, 0)

    async def ask(case: str, sender: Producer) -> None:
        await session.send_case(case, group_id=group, **sender._asdict())

    await ask("a group", producer)
    await ask("again", producer)
    await ask("a later epoch", producer._replace(producer_epoch=9))
    await ask("another producer id", producer._replace(producer_id=1 << 40))
    await ask("an unknown id", producer._replace(transactional_id=session.unique_name("none")))
    await ask("an empty id", producer._replace(transactional_id=""))


async def end_txn(session: ApiSession) -> None:
    topic = await session.create_topic("there", 2)

    async def ask(case: str, sender: Producer, committed: bool) -> Any:
        return await session.send_case(case, committed=committed, **sender._asdict())

    empty = await create_producer(session, "empty")
    await ask("commit of nothing", empty, True)
    if session.version < 5:
        await ask("abort of nothing", empty, False)
    for word, committed in (("commit", True), ("abort", False)):
        producer = await create_producer(session, word)
        await add_partitions(session, producer, topic, 0, 1)
        await ask(f"{word}, a later epoch", producer._replace(producer_epoch=9), committed)
        await ask(f"{word}, another producer id", producer._replace(producer_id=1 << 40), committed)
        await ask(word, producer, committed)
        await wait_until_completed(session, producer)
        await ask(f"{word} again", producer, committed)
        await ask(f"the opposite of a {word}", producer, not committed)
        if session.version >= 5:
            following = producer._replace(producer_epoch=producer.producer_epoch + 1)
            await ask(f"{word} of nothing after a {word}", following, True)
    await ask("an unknown id", empty._replace(transactional_id=session.unique_name("none")), True)
    await ask("an empty id", empty._replace(transactional_id=""), True)


async def txn_offset_commit(session: ApiSession) -> None:
    main_topic = await session.create_topic("there", 2)
    producer = await create_producer(session)
    group = session.unique_name("group")
    await wait_for_coordinator(session, group, 0)

    async def ask(case: str, sender: Producer, *partitions: int, topic: str = main_topic, **more: Any) -> None:
        offsets = [
            {"partition_index": index, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": "m"}
            for index in partitions
        ]
        fields: dict[str, Any] = {
            "group_id": group,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
        } | more
        topics = [{"name": topic, "partitions": offsets}]
        await session.send_case(case, topics=topics, **sender._asdict(), **fields)

    if session.version < 5:
        await ask("not in the transaction", producer, 0)
        await session.send("add_offsets_to_txn", group_id=group, **producer._asdict())
    await ask("an unknown partition", producer, 9)
    await ask("an unknown topic", producer, 0, topic=session.unique_name("unknown"))
    await ask("a generation", producer, 0, generation_id=3, member_id="me")
    await ask("two partitions", producer, 0, 1)
    await ask("again", producer, 0)
    await ask("an empty group", producer, 0, group_id="")
    await ask("a later epoch", producer._replace(producer_epoch=9), 0)
    pending = await session.send(
        "offset_fetch",
        version=9,
        require_stable=True,
        groups=[{"group_id": group, "topics": [{"name": main_topic, "partition_indexes": (0, 1)}]}],
    )
    session.responses["offsets of an open transaction"] = [
        one.error_code.name for one in pending.groups[0].topics[0].partitions
    ]
    await end_transaction(session, producer, committed=True)


async def describe_transactions(session: ApiSession) -> None:
    topic = await session.create_topic("there", 3)
    producer = await create_producer(session)

    async def ask(case: str, *ids: str) -> None:
        await session.send_case(case, transactional_ids=ids)

    await ask("empty", producer.transactional_id)
    await add_partitions(session, producer, topic, 0, 2)
    await ask("ongoing", producer.transactional_id)
    await end_transaction(session, producer, committed=False)
    await ask("aborted", producer.transactional_id)
    await ask("an unknown id", session.unique_name("none"))
    await ask("an empty id", "")
    await ask("none")


async def list_transactions(session: ApiSession) -> None:
    topic = await session.create_topic("there", 1)
    idle, busy = await create_producer(session, "idle"), await create_producer(session, "busy")
    await add_partitions(session, busy, topic, 0)

    async def ask(case: str, states: tuple[str, ...] = (), ids: tuple[int, ...] = (), **more: Any) -> None:
        fields: dict[str, Any] = {"state_filters": states, "producer_id_filters": ids, "duration_filter": -1} | more
        answer = await session.send_case(case, **fields)
        own = {
            one.transactional_id: one
            for one in answer.transaction_states
            if "list_transactions" in one.transactional_id
        }
        prefix = session.unique_name("")
        session.responses[case] = {
            "error_code": answer.error_code.name,
            "unknown_state_filters": list(answer.unknown_state_filters),
            "found": {
                name.removeprefix(prefix): one.transaction_state
                for name, one in sorted(own.items())
                if name.startswith(prefix)
            },
        }

    await ask("all")
    await ask("ongoing", ("Ongoing",))
    await ask("empty or ongoing", ("Empty", "Ongoing"))
    await ask("an unknown state", ("Nonsense",))
    await ask("a producer", (), (busy.producer_id,))
    await ask("another state of a producer", ("Empty",), (busy.producer_id,))
    if session.version >= 1:
        await ask("for an hour", ("Ongoing",), duration_filter=3_600_000)
        await ask("for no time", (), (idle.producer_id,), duration_filter=0)
    if session.version >= 2:
        await ask("a pattern", transactional_id_pattern=".*idle")
        await ask("a pattern of a part", transactional_id_pattern="idle")


async def write_txn_markers(session: ApiSession) -> None:
    begun = encode_values(b"a", producer_id=4000, producer_epoch=2, base_sequence=0)
    main_topic = await session.create_topic("there", 2, [begun])

    async def ask(case: str, epoch: int, coordinator_epoch: int, *partitions: int, topic: str = main_topic) -> None:
        marker = {
            "producer_id": 4000,
            "producer_epoch": epoch,
            "transaction_result": False,
            "coordinator_epoch": coordinator_epoch,
            "topics": [{"name": topic, "partition_indexes": partitions}],
        }
        await session.send_case(case, markers=[marker])

    await ask("a marker", 2, 5, 0, 1)
    await ask("again", 2, 5, 0)
    await ask("a former coordinator", 2, 4, 0)
    await ask("a former epoch", 1, 5, 0)
    await ask("an unknown partition", 2, 5, 9)
    await ask("an unknown topic", 2, 5, 0, topic=session.unique_name("unknown"))
    await session.send_case("none", markers=())


async def update_features(session: ApiSession) -> None:
    async def ask(case: str, feature: str, level: int, upgrade_type: int, validate_only: bool = True) -> None:
        update = {
            "feature": feature,
            "max_version_level": level,
            "upgrade_type": upgrade_type,
            "allow_downgrade": upgrade_type > 1,
        }
        await session.send_case(case, timeout=10_000, feature_updates=[update], validate_only=validate_only)

    await ask("as it is", "transaction.version", 2, 1)
    await ask("too high", "transaction.version", 99, 1)
    await ask("lower, by an upgrade", "transaction.version", 1, 1)
    await ask("an unknown feature", "nonsense.version", 1, 1)
    if session.version >= 1:
        await ask("lower", "transaction.version", 1, 2)
        await ask("unknown kind", "transaction.version", 1, 9)


TRANSACTION_CASES = (
    add_partitions_to_txn,
    add_offsets_to_txn,
    end_txn,
    txn_offset_commit,
    describe_transactions,
    list_transactions,
    write_txn_markers,
    update_features,
)
