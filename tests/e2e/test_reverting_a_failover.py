"""A failover is reverted: with `role` Replicate again, the topics are mirrored again from the
failover offset on.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.brokers import BROKERS, BrokerProcess, run_ottla_broker
from tests.e2e.mirroring import log_bytes, produce, seen, try_mirror, watermarks
from tests.e2e.test_failback import TOPIC, Sites, commit, committed, decoded, saved, values
from tests.waiting import eventually

OPEN = "the topic has failed over and takes records of its own; on.divergence=Truncate"


@pytest.fixture(params=["kafka", "ottla"])
def sites(request: pytest.FixtureRequest) -> Iterator[Sites]:
    """The source `a`, Kafka or Ottla, knows nothing of its mirror `b`."""
    with BROKERS[request.param]() as a, run_ottla_broker() as b:
        made = Sites(a, b)
        made.create()
        yield made


def open_transaction(source: BrokerProcess) -> Producer:
    """Begins a transaction with one record."""
    made = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "open"})
    made.init_transactions(30)
    made.begin_transaction()
    made.produce(TOPIC, b"in a transaction", partition=0)
    assert made.flush(30) == 0
    return made


def copied_and_failed_over(sites: Sites) -> None:
    """Both sites have a hundred records, and the topic at `b` is writable."""
    produce(sites.a.bootstrap, TOPIC, [b"a"] * 100, partition=0)
    sites.west()
    sites.same_ends()
    sites.west(role="FailedOver")
    sites.becomes(sites.b, "FailedOver")


def test_failover_is_reverted_with_consent_and_own_records_are_saved(sites: Sites) -> None:
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess) and isinstance(b, BrokerProcess)
    for partition in (0, 1):
        produce(a.bootstrap, TOPIC, [b"a %d" % n for n in range(100)], partition=partition, enable_idempotence=True)
    open_one = open_transaction(a) if a.kind == "kafka" else None
    copied = 100 + (open_one is not None)
    sites.west()
    for partition in (0, 1):
        sites.same_ends(partition)
    topic_log = b.log_dir / f"{TOPIC}-1" / f"{0:020d}.log"
    before = topic_log.stat().st_ino
    sites.west(role="FailedOver")
    for partition in (0, 1):
        sites.becomes(b, "FailedOver", partition)
    produce(b.bootstrap, TOPIC, [b"written in the drill"] * 5, partition=0)
    commit(b.bootstrap, "workers", {0: copied + 3, 1: 60})
    produce(a.bootstrap, TOPIC, [b"meanwhile"] * 10, partition=0)

    # Without consent it stays open, and says so.
    sites.west(role="Replicate")
    eventually(lambda: OPEN in b.log_tail(), within_s=20, message=lambda: b.log_tail(3000))
    produce(b.bootstrap, TOPIC, [b"still open"], partition=0)
    assert sites.state(b) == "FailedOver" and not saved(b.log_dir)

    sites.west(on_divergence="Truncate")
    for partition in (0, 1):
        sites.becomes(b, "Replicating", partition)
        sites.assert_same(partition)
        assert log_bytes(a.log_dir, TOPIC, partition) == log_bytes(b.log_dir, TOPIC, partition)
    assert topic_log.stat().st_ino == before, "it is not copied anew"
    (tail,) = saved(b.log_dir)
    assert decoded(tail)[-6:] == [b"written in the drill"] * 5 + [b"still open"]
    assert not saved(b.log_dir, 1), "nothing was written there"
    assert committed(b.bootstrap, "workers")[0] == copied, "a group does not pass over what the source has instead"
    with pytest.raises(AssertionError, match=r"INVALID_TOPIC|Invalid topic"):
        produce(b.bootstrap, TOPIC, [b"closed"], partition=0)
    if open_one is not None:  # it was aborted here; it goes on at the source, and so does its copy
        open_one.commit_transaction(30)
        sites.assert_same()
        assert b"in a transaction" in [one.value for one in seen(b.bootstrap, TOPIC, 0, isolation="read_committed")]

    # The real one, and a leader that starts anew knows where it begins.
    sites.west(role="FailedOver")
    for partition in (0, 1):
        sites.becomes(b, "FailedOver", partition)
    produce(b.bootstrap, TOPIC, [b"ours"], partition=0)
    b.kill()
    b.start()
    sites.becomes(b, "FailedOver")
    assert values(b.bootstrap)[-1] == b"ours"
    assert len(saved(b.log_dir)) == 1, "nothing more was cut"


def test_source_that_lost_records_since_the_failover_is_detected(sites: Sites) -> None:
    """Between the failover and its revert the source loses mirrored records."""
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess) and isinstance(b, BrokerProcess)
    copied_and_failed_over(sites)
    a.stop()
    log = a.log_dir / f"{TOPIC}-0"
    for path in log.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()
    for place in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        (a.log_dir / place).unlink(missing_ok=True)
    a.start()
    produce(a.bootstrap, TOPIC, [b"another history"] * 20, partition=0)
    code, message = try_mirror(b.bootstrap, "west", {"role": "Replicate", "on.divergence": "Truncate"})
    assert code.value == 0, message
    told = sites.becomes(b, "Stopped")
    assert "the source has lost mirrored records" in str(told["why"])
    assert values(b.bootstrap) == [b"a"] * 100


def test_records_that_were_deleted_since_the_failover_are_mirrored_again(sites: Sites) -> None:
    """Mirrored and own records were deleted here, so the log starts above the failover offset."""
    a, b = sites.a, sites.b
    assert isinstance(a, BrokerProcess) and isinstance(b, BrokerProcess)
    copied_and_failed_over(sites)
    produce(b.bootstrap, TOPIC, [b"b"] * 50, partition=0)
    admin = AdminClient({"bootstrap.servers": b.bootstrap})
    wanted = TopicPartition(TOPIC, 0, 120)
    assert admin.delete_records([wanted])[wanted].result(30).low_watermark == 120
    produce(a.bootstrap, TOPIC, [b"meanwhile"] * 10, partition=0)
    sites.west(role="Replicate", on_divergence="Truncate")
    sites.becomes(b, "Replicating")
    eventually(lambda: watermarks(b.bootstrap, TOPIC, 0)[1] == 110, within_s=30, message=lambda: b.log_tail(3000))
    assert values(b.bootstrap) == [b"meanwhile"] * 10
    (tail,) = saved(b.log_dir)
    assert decoded(tail)[-30:] == [b"b"] * 30
    produce(a.bootstrap, TOPIC, [b"after"], partition=0)
    b.kill()
    b.start()
    eventually(lambda: values(b.bootstrap)[-1:] == [b"after"], within_s=30, message=lambda: b.log_tail(3000))
