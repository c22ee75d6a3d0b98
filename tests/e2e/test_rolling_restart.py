"""A rolling restart: clients get no unexpected errors and lose no records."""

from collections import Counter
from random import Random

from tests.clusters import ProcessCluster
from tests.e2e.rounds import checks
from tests.e2e.rounds.load import GroupMember, committed_offsets, read_all_records
from tests.e2e.rounds.round_runner import PARTITIONS, create_load, create_topic, wait_for_members
from tests.waiting import eventually

TOPIC = "rolled"


def test_rolling_restart_under_load_loses_no_acknowledged_record_and_repeats_none(cluster: ProcessCluster) -> None:
    create_topic(cluster, TOPIC, {})
    load = create_load(cluster, TOPIC, Random(1))
    partitions = [(TOPIC, partition) for partition in range(PARTITIONS)]
    load.start()
    try:
        eventually(
            lambda: load.count_acknowledged() > 500 and load.consumed(),
            within_s=30,
            message="acknowledged and consumed records",
        )
        for broker in cluster.brokers.values():
            assert broker.stop(within_s=60) == (143 if cluster.kind == "kafka" else 0)
            broker.start()
            cluster.wait_until_healthy()
        load.stop_producers()
        contents = read_all_records(cluster.bootstrap, TOPIC, PARTITIONS)
        wait_for_members(load, contents)
    finally:
        load.stop_producers()
        load.stop_members()
    committed = committed_offsets(cluster.bootstrap, load.members[0].group, partitions)
    assert checks.find_violations(load, contents, committed) == []
    assert load.count_acknowledged() == sum(producer.sent_count for producer in load.producers)
    values = [value for records in contents.values() for value in records.values()]
    # Kafka stops before it acknowledges all appended batches, and a plain producer repeats them.
    if cluster.kind == "kafka":
        values = [value for value in values if value.startswith(b"once/")]
    assert [value for value, times in Counter(values).items() if times > 1] == []
    assert [error for member in load.members for error in unexpected_errors(member)] == []


def unexpected_errors(member: GroupMember) -> list[str]:
    """Errors other than those of a rebalance, which happens when the second member joins, and of
    commits while a new coordinator loads. librdkafka retries such a commit for 0.3 s only, which is
    too short on a slow machine, and the member commits again.
    """
    expected = ("rebalanc", "coordinator load in progress")
    return [error for error in member.recovered_errors if not any(it in error.lower() for it in expected)]
