"""A failover is reverted: with `role` Replicate again, the topics are mirrored again from the
failover offset on.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.brokers import BROKERS, BrokerProcess, run_ottla_broker
from tests.e2e.failback_sites import TOPIC, Sites, read_values, record_values, saved_segments
from tests.e2e.mirroring import (
    commit_offsets,
    committed_offsets,
    produce,
    read_log_bytes,
    read_records,
    read_watermarks,
    try_set_mirror,
)
from tests.waiting import eventually

OPEN = "the topic has failed over and takes records of its own; on.divergence=Truncate"


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.slow), "ottla"])
def sites(request: pytest.FixtureRequest) -> Iterator[Sites]:
    """The source `a` is a broker of Kafka or Ottla; no configuration is changed there."""
    with BROKERS[request.param]() as a, run_ottla_broker() as b:
        sites = Sites(a, b)
        sites.create_topic()
        yield sites


def open_transaction(source: BrokerProcess) -> Producer:
    """Begins a transaction with one record."""
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"in a transaction", partition=0)
    assert producer.flush(30) == 0
    return producer


def copy_and_fail_over(sites: Sites) -> None:
    """Copies a hundred records to `b`, and makes the topic there writable by a failover."""
    produce(sites.a.bootstrap, TOPIC, [b"a"] * 100, partition=0)
    sites.mirror_to_b()
    sites.wait_for_same_offsets()
    sites.mirror_to_b(role="FailedOver")
    sites.wait_for_state(sites.b, "FailedOver")


def test_failover_is_reverted_with_consent_and_own_records_are_saved(sites: Sites) -> None:
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess) and isinstance(b, BrokerProcess)
    for partition in (0, 1):
        produce(a.bootstrap, TOPIC, [b"a %d" % n for n in range(100)], partition=partition, enable_idempotence=True)
    transaction = open_transaction(a) if a.kind == "kafka" else None
    copied = 100 + (transaction is not None)
    sites.mirror_to_b()
    for partition in (0, 1):
        sites.wait_for_same_offsets(partition)
    topic_log = b.log_dir / f"{TOPIC}-1" / f"{0:020d}.log"
    before = topic_log.stat().st_ino
    sites.mirror_to_b(role="FailedOver")
    for partition in (0, 1):
        sites.wait_for_state(b, "FailedOver", partition)
    produce(b.bootstrap, TOPIC, [b"written in the drill"] * 5, partition=0)
    commit_offsets(b.bootstrap, "workers", TOPIC, {0: copied + 3, 1: 60})
    produce(a.bootstrap, TOPIC, [b"meanwhile"] * 10, partition=0)

    # Without consent the topic stays writable, and the broker logs why.
    sites.mirror_to_b(role="Replicate")
    eventually(lambda: OPEN in b.log_tail(), within_s=20, message=lambda: b.log_tail(3000))
    produce(b.bootstrap, TOPIC, [b"still open"], partition=0)
    assert sites.state(b) == "FailedOver" and not saved_segments(b.log_dir)

    sites.mirror_to_b(on_divergence="Truncate")
    for partition in (0, 1):
        sites.wait_for_state(b, "Replicating", partition)
        sites.assert_same_records(partition)
        assert read_log_bytes(a.log_dir, TOPIC, partition) == read_log_bytes(b.log_dir, TOPIC, partition)
    assert topic_log.stat().st_ino == before, "the log is not copied from the start"
    (tail,) = saved_segments(b.log_dir)
    assert record_values(tail)[-6:] == [b"written in the drill"] * 5 + [b"still open"]
    assert not saved_segments(b.log_dir, 1), "partition 1 has no records of its own"
    assert committed_offsets(b.bootstrap, "workers", TOPIC, 2)[0] == copied, (
        "a group does not skip the records that the source has at these offsets"
    )
    with pytest.raises(AssertionError, match=r"INVALID_TOPIC|Invalid topic"):
        produce(b.bootstrap, TOPIC, [b"closed"], partition=0)
    if transaction is not None:
        # The failover aborted the transaction at `b`. The revert truncated that abort marker, so
        # the transaction is open again there, and the source's commit reaches it.
        transaction.commit_transaction(30)
        sites.assert_same_records()
        assert b"in a transaction" in [
            record.value for record in read_records(b.bootstrap, TOPIC, 0, isolation="read_committed")
        ]

    # After a failover that is not reverted, a restarted leader still knows the failover offset.
    sites.mirror_to_b(role="FailedOver")
    for partition in (0, 1):
        sites.wait_for_state(b, "FailedOver", partition)
    produce(b.bootstrap, TOPIC, [b"ours"], partition=0)
    b.kill()
    b.start()
    sites.wait_for_state(b, "FailedOver")
    assert read_values(b.bootstrap)[-1] == b"ours"
    assert len(saved_segments(b.log_dir)) == 1, "nothing more was truncated"


def test_source_that_lost_records_since_the_failover_is_detected(sites: Sites) -> None:
    """Between the failover and its revert the source loses mirrored records."""
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess) and isinstance(b, BrokerProcess)
    copy_and_fail_over(sites)
    a.stop()
    log = a.log_dir / f"{TOPIC}-0"
    for path in log.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()
    for checkpoint in (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ):
        (a.log_dir / checkpoint).unlink(missing_ok=True)
    a.start()
    produce(a.bootstrap, TOPIC, [b"another history"] * 20, partition=0)
    code, message = try_set_mirror(b.bootstrap, "west", {"role": "Replicate", "on.divergence": "Truncate"})
    assert code.value == 0, message
    status = sites.wait_for_state(b, "Stopped")
    assert "the source has lost mirrored records" in str(status["why"])
    assert read_values(b.bootstrap) == [b"a"] * 100


def test_mirroring_continues_at_the_failover_offset_though_the_log_starts_above_it(sites: Sites) -> None:
    """Records of the source and of `b` were deleted at `b`, so the log of `b` starts above the
    failover offset.
    """
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess) and isinstance(b, BrokerProcess)
    copy_and_fail_over(sites)
    produce(b.bootstrap, TOPIC, [b"b"] * 50, partition=0)
    admin = AdminClient({"bootstrap.servers": b.bootstrap})
    new_start = TopicPartition(TOPIC, 0, 120)
    assert admin.delete_records([new_start])[new_start].result(30).low_watermark == 120
    produce(a.bootstrap, TOPIC, [b"meanwhile"] * 10, partition=0)
    sites.mirror_to_b(role="Replicate", on_divergence="Truncate")
    sites.wait_for_state(b, "Replicating")
    eventually(lambda: read_watermarks(b.bootstrap, TOPIC, 0)[1] == 110, within_s=30, message=lambda: b.log_tail(3000))
    assert read_values(b.bootstrap) == [b"meanwhile"] * 10
    (tail,) = saved_segments(b.log_dir)
    assert record_values(tail)[-30:] == [b"b"] * 30
    produce(a.bootstrap, TOPIC, [b"after"], partition=0)
    b.kill()
    b.start()
    eventually(lambda: read_values(b.bootstrap)[-1:] == [b"after"], within_s=30, message=lambda: b.log_tail(3000))
