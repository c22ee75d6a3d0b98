"""A planned restart of every broker, one after the other, is seen by no client."""

from collections import Counter
from random import Random

from tests.clusters import ProcessCluster
from tests.e2e.rounds import checks
from tests.e2e.rounds.load import Member, committed_offsets, kept
from tests.e2e.rounds.play import CATCHES_UP_WITHIN_S, PARTITIONS, load_for, make_topic
from tests.waiting import eventually

TOPIC = "rolled"


def test_three_brokers_restarted_under_load(cluster: ProcessCluster) -> None:
    make_topic(cluster, TOPIC, {})
    load = load_for(cluster, TOPIC, Random(1))
    places = [(TOPIC, partition) for partition in range(PARTITIONS)]
    load.start()
    try:
        eventually(lambda: load.acked() > 500 and load.seen(), within_s=30, message="acknowledged and consumed records")
        for broker in cluster.brokers.values():
            assert broker.stop(within_s=60) == (143 if cluster.kind == "kafka" else 0)
            broker.start()
            eventually(lambda: cluster.is_healthy(), within_s=60, message="the cluster is whole")
        load.stop_producers()
        contents = kept(cluster.bootstrap, TOPIC, PARTITIONS)
        eventually(
            lambda: all(contents[place].keys() <= load.seen().get(place, {}).keys() for place in places),
            within_s=CATCHES_UP_WITHIN_S,
            message="the group has read everything",
        )
    finally:
        load.stop_producers()
        load.stop_members()
    committed = committed_offsets(cluster.bootstrap, load.members[0].group, places)
    assert checks.broken_promises(load, contents, committed) == []
    assert load.acked() == sum(producer.sent for producer in load.producers)
    values = [value for records in contents.values() for value in records.values()]
    if cluster.kind == "kafka":  # repeats for producers without idempotence what it took and could not answer any more
        values = [value for value in values if value.startswith(b"once/")]
    assert [value for value, times in Counter(values).items() if times > 1] == []
    assert [trouble for member in load.members for trouble in unexpected(member)] == []


def unexpected(member: Member) -> list[str]:
    """What a member was told beyond that its group was rebalanced, which it is when both have joined."""
    return [trouble for trouble in member.troubles if "rebalanc" not in trouble.lower()]
