"""A planned restart of every broker, one after the other, is seen by no client."""

from collections import Counter
from random import Random

from tests.clusters import ProcessCluster
from tests.e2e.rounds import checks
from tests.e2e.rounds.load import GroupMember, committed_offsets, read_all_records
from tests.e2e.rounds.round_runner import CATCH_UP_TIMEOUT_S, PARTITIONS, create_load, create_topic
from tests.waiting import eventually

TOPIC = "rolled"


def test_three_brokers_restarted_under_load(cluster: ProcessCluster) -> None:
    create_topic(cluster, TOPIC, {})
    load = create_load(cluster, TOPIC, Random(1))
    places = [(TOPIC, partition) for partition in range(PARTITIONS)]
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
            eventually(lambda: cluster.is_healthy(), within_s=60, message="the cluster is whole")
        load.stop_producers()
        contents = read_all_records(cluster.bootstrap, TOPIC, PARTITIONS)
        eventually(
            lambda: all(contents[place].keys() <= load.consumed().get(place, {}).keys() for place in places),
            within_s=CATCH_UP_TIMEOUT_S,
            message="the group has read everything",
        )
    finally:
        load.stop_producers()
        load.stop_members()
    committed = committed_offsets(cluster.bootstrap, load.members[0].group, places)
    assert checks.find_violations(load, contents, committed) == []
    assert load.count_acknowledged() == sum(producer.sent_count for producer in load.producers)
    values = [value for records in contents.values() for value in records.values()]
    if cluster.kind == "kafka":  # repeats for producers without idempotence what it took and could not answer any more
        values = [value for value in values if value.startswith(b"once/")]
    assert [value for value, times in Counter(values).items() if times > 1] == []
    assert [trouble for member in load.members for trouble in unexpected_errors(member)] == []


def unexpected_errors(member: GroupMember) -> list[str]:
    """What a member was told beyond that its group was rebalanced, which it is when both have joined."""
    return [trouble for trouble in member.recovered_errors if "rebalanc" not in trouble.lower()]
