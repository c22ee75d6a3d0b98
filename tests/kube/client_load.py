"""A producer and a consumer group that run during a disruption, and the checks of their delivery
guarantees afterwards.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

from tests.e2e.rounds import checks
from tests.e2e.rounds.load import GroupMember, Load, Producer, TopicPartition, committed_offsets, read_all_records
from tests.waiting import eventually

PROGRESS_WITHIN_S = 60.0
RECOVERY_WITHIN_S = 120.0


@contextmanager
def run_clients(
    topic: str,
    partitions: int,
    bootstrap: Callable[[], str],
    is_recovered: Callable[[], object],
    settings: Mapping[str, str] | None = None,
) -> Iterator[Load]:
    """Runs an idempotent producer and two members of a group on an existing topic during the block.

    After the block, waits for `is_recovered`, and asserts that every acknowledged record is in the
    topic exactly once and in order, and that the group has read it. `bootstrap` returns the current
    bootstrap servers; `settings` override the clients' configuration.
    """
    overrides = dict(settings or {})
    producer = Producer("once", bootstrap(), topic, partitions, {"enable.idempotence": True, **overrides})
    group = f"readers-of-{topic}"
    load = Load([producer], [GroupMember(f"member-{n}", bootstrap(), topic, group, settings=overrides) for n in (1, 2)])
    load.start()
    try:
        eventually(
            lambda: load.count_acknowledged() > 300 and load.consumed(),
            within_s=PROGRESS_WITHIN_S,
            message="acknowledged and consumed records",
        )
        yield load
        eventually(is_recovered, within_s=RECOVERY_WITHIN_S, message="the cluster has recovered")
        load.stop_producers()
        topic_partitions = [(topic, partition) for partition in range(partitions)]
        contents = read_all_records(bootstrap(), topic, partitions)
        eventually(
            lambda: all(contents[it].keys() <= load.consumed().get(it, {}).keys() for it in topic_partitions),
            within_s=60,
            message="the group has read all records",
        )
    finally:
        load.stop_producers()
        load.stop_members()
        count, stall_s = load.count_acknowledged(), longest_stall_s(producer)
        print(f"{topic}: {count} records acknowledged, longest stall of a partition {stall_s:.2f} s")
    committed = committed_offsets(bootstrap(), load.members[0].group, topic_partitions)
    assert checks.find_violations(load, contents, committed) == []
    assert load.count_acknowledged() == producer.sent_count


def longest_stall_s(producer: Producer) -> float:
    """The longest time between consecutive acknowledgements in one partition. The producer sends to
    all partitions in turn.
    """
    times: dict[TopicPartition, list[float]] = defaultdict(list)
    for ack in producer.acknowledgements:
        times[ack.partition].append(ack.at_s)
    return max((after - before for it in times.values() for before, after in pairwise(it)), default=0.0)


def wait_for_progress(load: Load, records: int = 300) -> None:
    """Waits until `records` more records are acknowledged."""
    before = load.count_acknowledged()
    eventually(
        lambda: load.count_acknowledged() >= before + records,
        within_s=PROGRESS_WITHIN_S,
        message="more acknowledged records",
    )
