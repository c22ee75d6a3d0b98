"""A mirror of Apache Kafka or of Ottla: the copy is the same log."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import BROKERS, Broker, ottla_broker
from tests.e2e.mirroring import log_bytes, produce, seen, set_mirror, watermarks
from tests.waiting import eventually

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass
class Pair:
    source: Broker
    target: Broker

    def mirror(self, **settings: str) -> None:
        given = {"bootstrap.servers": self.source.bootstrap, "topics": "*", "metadata.max.age.ms": "500"}
        set_mirror(self.target.bootstrap, "west", given | {key.replace("_", "."): value for key, value in settings.items()})

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.source.bootstrap})
        new = NewTopic(topic, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        admin.create_topics([new])[topic].result(30)

    def caught_up(self, topic: str, partition: int = 0) -> None:
        """Until the copy ends, and starts, where the source does."""
        eventually(
            lambda: watermarks(self.target.bootstrap, topic, partition)
            == watermarks(self.source.bootstrap, topic, partition),
            within_s=30,
            what=lambda: (
                f"{topic}-{partition}: {watermarks(self.source.bootstrap, topic, partition)} at the source, "
                f"{watermarks(self.target.bootstrap, topic, partition)} here\n{self.target.log_text(3000)}"
            ),
        )

    def assert_same(self, topic: str, partition: int = 0) -> None:
        self.caught_up(topic, partition)
        for isolation in ("read_uncommitted", "read_committed"):
            there = seen(self.source.bootstrap, topic, partition, isolation=isolation)
            assert seen(self.target.bootstrap, topic, partition, isolation=isolation) == there

    def assert_same_bytes(self, topic: str, partition: int = 0) -> None:
        there = log_bytes(self.source.log_dir, topic, partition)
        assert log_bytes(self.target.log_dir, topic, partition) == there


@pytest.fixture(params=["kafka", "ottla"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    source = BROKERS[request.param]
    fast_cleaner = {"log_cleaner_backoff_ms": 200, "log_retention_check_interval_ms": 500}
    with source(**fast_cleaner) as there, ottla_broker() as here:
        yield Pair(there, here)


def test_records_of_all_kinds(pair: Pair) -> None:
    pair.create("kinds", 3, max_message_bytes="3000000")
    for compression in COMPRESSIONS:
        produce(pair.source.bootstrap, "kinds", (b"x" * n for n in range(300)), **{"compression.type": compression})
    pair.mirror()
    pair.caught_up("kinds")
    produce(pair.source.bootstrap, "kinds", (b"idempotent" * n for n in range(500)), **{"enable.idempotence": True})
    produce(pair.source.bootstrap, "kinds", [b"m" * 1_000_000] * 4, partition=1, **{"message.max.bytes": 2_000_000})
    with_headers = Producer({"bootstrap.servers": pair.source.bootstrap})
    with_headers.produce("kinds", b"v", partition=0, headers=[("a", b"1"), ("a", None), ("é", b"")], timestamp=1234567)
    with_headers.produce("kinds", None, key=b"only a key", partition=0)
    assert with_headers.flush(30) == 0
    for partition in range(3):  # the last one is empty
        pair.assert_same("kinds", partition)
        pair.assert_same_bytes("kinds", partition)
    with pytest.raises(AssertionError, match="INVALID_TOPIC|Invalid topic"):
        produce(pair.target.bootstrap, "kinds", [b"not here"])
    pair.target.restart()
    produce(pair.source.bootstrap, "kinds", [b"after a restart"] * 10)
    pair.assert_same("kinds")
    pair.target.kill()
    produce(pair.source.bootstrap, "kinds", [b"while nobody was there"] * 10)
    pair.target.start()
    produce(pair.source.bootstrap, "kinds", [b"after a crash"] * 10)
    pair.assert_same("kinds")
    pair.assert_same_bytes("kinds")
