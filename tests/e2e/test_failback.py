"""Failback: the old source mirrors its former mirror. Its diverged records are truncated only with
onDivergence Truncate, and are saved first.
"""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import BrokerProcess, run_ottla_broker
from tests.clusters import run_cluster
from tests.e2e.failback_sites import TOPIC, Sites, read_values, record_values, saved_segments
from tests.e2e.java_tools import run_java_tool
from tests.e2e.mirroring import commit_offsets, committed_offsets, produce, read_log_bytes, read_records
from tests.waiting import eventually


@pytest.fixture
def sites() -> Iterator[Sites]:
    with run_ottla_broker() as a, run_ottla_broker() as b:
        yield Sites(a, b)


def test_sites_have_the_same_records_after_each_of_several_changes_of_the_source(sites: Sites) -> None:
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess) and isinstance(b, BrokerProcess)
    sites.create_topic()
    for partition, count in ((0, 100), (1, 40)):
        produce(
            a.bootstrap, TOPIC, [f"a {n}".encode() for n in range(count)], partition=partition, enable_idempotence=True
        )
    sites.mirror_to_b()
    for partition in (0, 1):
        sites.wait_for_same_offsets(partition)
    sites.mirror_to_b(role="Paused")
    produce(a.bootstrap, TOPIC, [f"never copied {n}".encode() for n in range(37)], compression_type="zstd")
    sites.mirror_to_b(role="FailedOver")
    for partition in (0, 1):
        sites.wait_for_state(b, "FailedOver", partition)
        produce(b.bootstrap, TOPIC, [f"b {n}".encode() for n in range(50)], partition=partition)
    commit_offsets(a.bootstrap, "workers", TOPIC, {0: 130, 1: 40})  # in partition 0 beyond what b has copied
    commit_offsets(b.bootstrap, "workers", TOPIC, {0: 110, 1: 45})
    before = read_records(a.bootstrap, TOPIC, 0)

    # Site a becomes the mirror. It truncates nothing without consent.
    sites.mirror_to_a()
    status = sites.wait_for_state(a, "Diverged")
    assert status["diverging"] == 37
    assert "37 records, from offset 100 to 136, are not at the source" in str(status["why"])
    sites.assert_same_records(1)
    for partition in (0, 1):
        with pytest.raises(AssertionError, match=r"INVALID_TOPIC|Invalid topic"):
            produce(a.bootstrap, TOPIC, [b"not here"], partition=partition)
    a.kill()
    a.start()
    sites.wait_for_state(a, "Diverged")
    assert read_records(a.bootstrap, TOPIC, 0) == before, "nothing is truncated without consent"
    assert not saved_segments(a.log_dir)

    sites.mirror_to_a(on_divergence="Truncate")
    sites.assert_same_records()
    for partition in (0, 1):
        assert read_log_bytes(a.log_dir, TOPIC, partition) == read_log_bytes(b.log_dir, TOPIC, partition)
    (tail,) = saved_segments(a.log_dir)
    assert tail.name == f"{100:020d}.log"
    assert record_values(tail) == [f"never copied {n}".encode() for n in range(37)]
    output = run_java_tool("kafka.tools.DumpLogSegments", "--files", str(tail), "--print-data-log")
    assert output.count("never copied") == 37
    eventually(
        lambda: committed_offsets(a.bootstrap, "workers", TOPIC, 2) == {0: 110, 1: 45},
        within_s=30,
        message="the groups' offsets of b",
    )
    produce(b.bootstrap, TOPIC, [b"more of b"] * 20)
    sites.assert_same_records()
    a.restart()
    produce(b.bootstrap, TOPIC, [b"even more of b"] * 20)
    sites.assert_same_records()

    # Site a takes over again, and b mirrors it again.
    sites.mirror_to_a(role="FailedOver", on_divergence="Truncate")
    sites.wait_for_state(a, "FailedOver")
    produce(a.bootstrap, TOPIC, [b"home"] * 30, enable_idempotence=True)
    sites.mirror_to_b(role="Replicate")
    sites.wait_for_state(b, "Replicating")
    sites.assert_same_records()
    assert read_values(b.bootstrap)[-30:] == [b"home"] * 30
    assert not saved_segments(b.log_dir), "b had no records of its own"
    with pytest.raises(AssertionError, match=r"INVALID_TOPIC|Invalid topic"):
        produce(b.bootstrap, TOPIC, [b"not here"])

    # A failover drill after that is reverted to its own failover offset, not to the earlier one.
    sites.mirror_to_b(role="FailedOver")
    sites.wait_for_state(b, "FailedOver")
    produce(b.bootstrap, TOPIC, [b"in the drill"] * 3)
    sites.mirror_to_b(role="Replicate")
    assert sites.wait_for_state(b, "Diverged")["diverging"] == 3
    sites.mirror_to_b(on_divergence="Truncate")
    sites.wait_for_state(b, "Replicating")
    sites.assert_same_records()
    (tail,) = saved_segments(b.log_dir)
    assert record_values(tail) == [b"in the drill"] * 3


def test_topic_is_not_adopted_without_proof(sites: Sites) -> None:
    """A mirror adopts no topic that only has the name of a topic of the source, and none that is
    the source of a mirrored topic which has not failed over.
    """
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess)
    sites.create_topic()
    sites.mirror_to_b()
    sites.wait_for_same_offsets()
    produce(a.bootstrap, TOPIC, [b"a"] * 10)
    sites.mirror_to_a(on_divergence="Truncate")
    eventually(lambda: "mirrors this one, by mirror 'west', and has not failed over" in a.log_tail(), within_s=20)
    produce(a.bootstrap, TOPIC, [b"still open"] * 10)
    sites.assert_same_records()
    sites.mirror_to_a(topics="other", on_divergence="Truncate")
    for site in (a, b):
        admin = AdminClient({"bootstrap.servers": site.bootstrap})
        admin.create_topics([NewTopic("other", 1, 1)])["other"].result(30)
        produce(site.bootstrap, "other", [site.bootstrap.encode()] * 5)
    eventually(lambda: "a topic of that name exists and is not mirrored" in a.log_tail(), within_s=20)
    assert [record.value for record in read_records(a.bootstrap, "other", 0)] == [a.bootstrap.encode()] * 5


@pytest.mark.slow
def test_old_source_truncates_while_its_brokers_are_killed() -> None:
    """Three replicas have diverged records. The leader is killed four times after the consent. At
    the end all replicas have the source's log, and the diverged records are saved.
    """
    with run_cluster("ottla", 3) as a, run_ottla_broker() as b:
        sites = Sites(a, b)
        sites.create_topic(1, 3)
        produce(a.bootstrap, TOPIC, [f"a {n}".encode() for n in range(2000)])
        sites.mirror_to_b()
        sites.wait_for_same_offsets()
        sites.mirror_to_b(role="Paused")
        produce(a.bootstrap, TOPIC, [f"never copied {n}".encode() for n in range(500)], linger_ms=1)
        sites.mirror_to_b(role="FailedOver")
        sites.wait_for_state(b, "FailedOver")
        produce(b.bootstrap, TOPIC, [f"b {n}".encode() for n in range(1000)])
        sites.mirror_to_a()
        sites.wait_for_state(a, "Diverged")
        sites.mirror_to_a(on_divergence="Truncate")
        for turn in range(4):
            leader = eventually(lambda: a.partition_state(TOPIC, 0).leader, within_s=30)
            victim = a.brokers[leader]
            time.sleep(0.15 * turn)  # a different moment each time; it waits for nothing
            victim.kill()
            produce(b.bootstrap, TOPIC, [b"while a broker is down"] * 100)
            victim.start()
            a.wait_until_healthy()
        sites.assert_same_records()
        a.wait_until_healthy()
        expected = read_log_bytes(b.log_dir, TOPIC, 0)
        for broker in a.brokers.values():
            eventually(lambda broker=broker: read_log_bytes(broker.log_dir, TOPIC, 0) == expected, within_s=30)  # type: ignore[misc]
        tails = [path for broker in a.brokers.values() for path in saved_segments(broker.log_dir)]
        assert tails
        for path in tails:
            assert record_values(path) == [f"never copied {n}".encode() for n in range(500)]
