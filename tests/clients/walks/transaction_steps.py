"""Steps of transactional producers, of both transaction versions, and of administrators who
describe, list or abort their transactions.
"""

from collections.abc import Mapping
from typing import Any, Final

from tests.clients.walks import group_steps as groups
from tests.clients.walks import record_steps as records
from tests.clients.walks import topic_steps as topics
from tests.clients.walks.step_generator import TIMES, StepGenerator, StepKind
from tests.clients.walks.steps import BatchSpec, Reference, Step
from tests.clients.walks.walk_state import UNKNOWN_PRODUCER

IDS: Final = ("x0", "x1", "x2")
TRANSACTION_V2_IDS: Final = frozenset({"x0"})
"""Ids whose clients mostly use transaction version 2. A change of version within a transaction is
part of a walk, too.
"""
TIMEOUT_MS: Final = 60_000
ONE_SEGMENT_MS: Final = str(1 << 42)
STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "CompleteAbort", "Dead", "Nonsense")


def choose_id(generator: StepGenerator) -> str:
    return generator.random.choices(IDS, (6, 5, 1))[0]


def name_of(transactional_id: str) -> Reference:
    return Reference("name", (transactional_id,))


def producer_of(transactional_id: str) -> Reference:
    return Reference("producer id", (transactional_id,))


def epoch_of(transactional_id: str) -> Reference:
    return Reference("producer epoch", (transactional_id,))


def uses_transaction_v2(generator: StepGenerator, transactional_id: str) -> bool:
    return (transactional_id in TRANSACTION_V2_IDS) != generator.chance(0.04)


def producer(generator: StepGenerator, transactional_id: str) -> dict[str, Any]:
    """Transactional id, producer id and epoch; usually those that belong together."""
    another = producer_of(generator.choose(*IDS)) if generator.chance() else UNKNOWN_PRODUCER
    shift = generator.random.choices((0, -1, 1), (25, 1, 1))[0]
    return {
        "transactional_id": "" if generator.chance(0.01) else name_of(transactional_id),
        "producer_id": another if generator.chance(0.04) else producer_of(transactional_id),
        "producer_epoch": Reference("producer epoch", (transactional_id,), shift),
    }


def init_producer_id(generator: StepGenerator) -> Step:
    transactional_id = choose_id(generator)
    own = generator.chance(0.4)
    new_producer = {"producer_id": -1, "producer_epoch": -1}
    return generator.step(
        "init_producer_id",
        low=3 if own else 0,
        source=(transactional_id,),
        **(producer(generator, transactional_id) if own else new_producer)
        | {"transactional_id": "" if generator.chance(0.02) else name_of(transactional_id)},
        transaction_timeout=generator.random.choices((TIMEOUT_MS, 0, 1 << 30), (25, 1, 1))[0],
        enable2_pc=generator.chance(0.03),
        keep_prepared_txn=generator.chance(0.03),
    )


def begin_producer(generator: StepGenerator, transactional_id: str) -> Step:
    return generator.step(
        "init_producer_id",
        source=(transactional_id,),
        transactional_id=name_of(transactional_id),
        transaction_timeout=TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
    )


def chosen_partitions(generator: StepGenerator) -> list[tuple[str, list[int]]]:
    return [(topic, generator.partitions(topic)) for topic in generator.topics()]


def add_partitions(generator: StepGenerator) -> Step:
    transactional_id = choose_id(generator)
    return add_partitions_step(generator, producer(generator, transactional_id), chosen_partitions(generator), high=5)


def add_partitions_step(
    generator: StepGenerator, sender: dict[str, Any], chosen: list[tuple[str, list[int]]], *, high: int
) -> Step:
    added = [{"name": Reference("name", (topic,)), "partitions": partitions} for topic, partitions in chosen]
    transaction = {**sender, "verify_only": generator.chance(0.3), "topics": added}
    return generator.step(
        "add_partitions_to_txn",
        high=high,
        transactions=[transaction],
        v3_and_below_topics=added,
        **{f"v3_and_below_{name}": value for name, value in sender.items()},
    )


def produce(generator: StepGenerator) -> Step:
    transactional_id = choose_id(generator)
    return produce_step(generator, transactional_id, chosen_partitions(generator), valid=False)


def produce_step(
    generator: StepGenerator, transactional_id: str, chosen: list[tuple[str, list[int]]], *, valid: bool
) -> Step:
    uses_v2 = uses_transaction_v2(generator, transactional_id)
    # One shift for all batches: Kafka refuses a whole request with batches of two epochs, Ottla
    # judges each batch by itself.
    shift = 0 if valid else generator.random.choices((0, -1, 1), (20, 1, 1))[0]
    data = [
        {
            **generator.topic_fields(topic),
            "partition_data": [
                {
                    "index": index,
                    "records": (build_batch(generator, transactional_id, topic, index, shift, valid=valid),),
                }
                for index in partitions
            ],
        }
        for topic, partitions in chosen
    ]
    return generator.step(
        "produce",
        low=12 if uses_v2 else 3,
        high=99 if uses_v2 else 11,
        transactional_id=None if not valid and generator.chance(0.02) else name_of(transactional_id),
        acks=-1,
        timeout=10_000,
        topic_data=data,
    )


def build_batch(
    generator: StepGenerator, transactional_id: str, topic: str, index: int, shift: int, *, valid: bool
) -> BatchSpec:
    own = producer_of(transactional_id)
    plus = 0 if valid else generator.random.choices((0, -1, 1), (16, 2, 1))[0]
    return BatchSpec(
        values=tuple(generator.choose(b"v", b"w", None) for _ in range(generator.choose(1, 1, 2))),
        at_ms=generator.choose(*TIMES),
        producer=own,
        epoch=Reference("producer epoch", (transactional_id,), shift),
        sequence=Reference("sequence", (topic, index, own), plus),
        transactional=valid or not generator.chance(0.03),
    )


def end_txn(generator: StepGenerator) -> Step:
    transactional_id = choose_id(generator)
    return end_txn_step(generator, transactional_id, producer(generator, transactional_id))


def end_txn_step(generator: StepGenerator, transactional_id: str, sender: dict[str, Any]) -> Step:
    uses_v2 = uses_transaction_v2(generator, transactional_id)
    return generator.step(
        "end_txn",
        low=5 if uses_v2 else 0,
        high=99 if uses_v2 else 4,
        source=(transactional_id,),
        committed=not generator.chance(0.35),
        **sender,
    )


def add_offsets(generator: StepGenerator) -> Step:
    sender = producer(generator, choose_id(generator))
    return generator.step("add_offsets_to_txn", group_id=Reference("name", (generator.group(),)), **sender)


def txn_offset_commit(generator: StepGenerator) -> Step:
    transactional_id = choose_id(generator)
    return offset_commit_step(generator, transactional_id, producer(generator, transactional_id), generator.group())


def offset_commit_step(generator: StepGenerator, transactional_id: str, sender: dict[str, Any], group: str) -> Step:
    uses_v2 = uses_transaction_v2(generator, transactional_id)
    offsets = [
        {
            "name": Reference("name", (topic,)),
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": generator.choose(0, 1, 2, 5),
                    "committed_leader_epoch": generator.choose(-1, 0),
                    "committed_metadata": generator.choose("", "m", None),
                }
                for index in partitions
            ],
        }
        for topic, partitions in chosen_partitions(generator)
    ]
    return generator.step(
        "txn_offset_commit",
        low=5 if uses_v2 else 0,
        high=99 if uses_v2 else 4,
        group_id=Reference("name", (group,)),
        generation_id=generator.random.choices((-1, 3), (20, 1))[0],
        member_id="" if not generator.chance(0.04) else "nobody",
        group_instance_id=None,
        topics=offsets,
        **sender,
    )


def whole_transaction(generator: StepGenerator) -> list[Step]:
    """The requests of a client's whole transaction, sometimes without its end. They are generated
    together because most requests have no effect on a transactional id without an open transaction.
    """
    transactional_id, group = choose_id(generator), generator.group()
    sender: dict[str, Any] = {
        "transactional_id": name_of(transactional_id),
        "producer_id": producer_of(transactional_id),
        "producer_epoch": epoch_of(transactional_id),
    }
    chosen = [
        (topic, [index for index in partitions if index in range(generator.created.get(topic, 0))])
        for topic, partitions in chosen_partitions(generator)
    ]
    chosen = [(topic, partitions) for topic, partitions in chosen if partitions]
    uses_transaction_v1 = transactional_id not in TRANSACTION_V2_IDS
    steps = [begin_producer(generator, transactional_id)] * generator.choose(0, 1, 2)
    if chosen:
        steps += [add_partitions_step(generator, sender, chosen, high=3)] * uses_transaction_v1
        steps += [
            produce_step(generator, transactional_id, chosen, valid=True) for _ in range(generator.choose(1, 1, 2))
        ]
    if generator.chance(0.4):
        group_id = Reference("name", (group,))
        steps += [generator.step("add_offsets_to_txn", group_id=group_id, **sender)] * uses_transaction_v1
        steps += [offset_commit_step(generator, transactional_id, sender, group)]
    if generator.chance(0.8):
        steps += [end_txn_step(generator, transactional_id, sender)]
    return steps


def write_txn_markers(generator: StepGenerator) -> Step:
    """The request of an administrator who aborts a transaction in one partition."""
    transactional_id, topic = choose_id(generator), generator.topic()
    marker = {
        "producer_id": producer_of(transactional_id),
        "producer_epoch": Reference(
            "producer epoch", (transactional_id,), generator.random.choices((0, -1, 1), (6, 1, 1))[0]
        ),
        "transaction_result": False,
        "topics": [{"name": Reference("name", (topic,)), "partition_indexes": generator.partitions(topic)[:1]}],
        "coordinator_epoch": 0,
    }
    return generator.step("write_txn_markers", markers=[marker])


def describe_transactions(generator: StepGenerator) -> Step:
    ids = generator.random.sample(IDS, generator.choose(1, 2))
    return generator.step("describe_transactions", transactional_ids=[name_of(one) for one in ids])


def list_transactions(generator: StepGenerator) -> Step:
    return generator.step(
        "list_transactions",
        state_filters=[generator.choose(*STATES)] if generator.chance(0.5) else [],
        producer_id_filters=[producer_of(choose_id(generator))] if generator.chance(0.3) else [],
        duration_filter=3_600_000 if generator.chance(0.2) else -1,
        transactional_id_pattern=generator.choose(".*x0", "x0", "(") if generator.chance(0.2) else None,
    )


def create_topics(generator: StepGenerator, topic: str | None = None) -> Step:
    """Creates topics whose partitions stay in one segment, because Kafka's Fetch response ends at
    the end of a segment and Ottla's does not. Without this setting a marker would begin another
    segment: its timestamp is from the broker's clock.
    """
    step = topics.create_topics(generator, topic)
    for wanted in step.fields["topics"]:
        wanted["configs"] = [*wanted["configs"], {"name": "segment.ms", "value": ONE_SEGMENT_MS}]
    return step


def fetch_without_session(generator: StepGenerator) -> Step:
    """A fetch without a session, usually from the beginning or near the end of the log."""
    fetched = [
        {
            **generator.topic_fields(topic),
            "partitions": [
                {
                    "partition": index,
                    "fetch_offset": 0 if generator.chance(0.6) else generator.offset(topic, index),
                    "partition_max_bytes": records.PLENTY,
                    "current_leader_epoch": -1,
                    "last_fetched_epoch": -1,
                }
                for index in generator.partitions(topic)
            ],
        }
        for topic in generator.topics()
    ]
    return generator.step(
        "fetch",
        low=4,
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        isolation_level=generator.choose(0, 1, 1),
        topics=fetched,
        session_id=0,
        session_epoch=-1,
    )


KINDS: Final[Mapping[StepKind, float]] = {
    create_topics: 0.4,
    topics.create_partitions: 0.2,
    topics.delete_topics: 0.4,
    whole_transaction: 8,
    init_producer_id: 2,
    add_partitions: 3,
    produce: 4,
    end_txn: 3,
    add_offsets: 1.5,
    txn_offset_commit: 2,
    write_txn_markers: 0.7,
    describe_transactions: 2,
    list_transactions: 1,
    fetch_without_session: 5,
    records.list_offsets: 2,
    records.describe_producers: 3,
    records.delete_records: 0.5,
    records.produce: 1.5,
    groups.offset_fetch: 3,
    groups.offset_commit: 0.7,
}
