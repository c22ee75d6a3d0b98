"""Two sites that mirror each other's topic, for tests of failover and failback."""

from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from ottla_broker.wire.records import iter_records
from tests.brokers import BrokerProcess
from tests.clusters import ProcessCluster
from tests.e2e.mirroring import describe_partition, mirror_status, mirror_topics, read_records, read_watermarks
from tests.waiting import eventually

TOPIC = "orders"


@dataclass
class Sites:
    """`a` is the first source, which `b` mirrors by mirror `west`. For a failback, `a` mirrors `b`
    by mirror `back`.
    """

    a: BrokerProcess | ProcessCluster
    b: BrokerProcess | ProcessCluster

    def create_topic(self, partitions: int = 2, factor: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": self.a.bootstrap})
        admin.create_topics([NewTopic(TOPIC, partitions, factor)])[TOPIC].result(30)

    def mirror_to_b(self, **settings: str) -> None:
        """Creates or changes mirror `west`."""
        mirror_topics(self.a, self.b, "west", **{"topics": TOPIC, "groups": "*"} | settings)

    def mirror_to_a(self, **settings: str) -> None:
        """Creates or changes mirror `back`."""
        mirror_topics(self.b, self.a, "back", **{"topics": TOPIC, "groups": "*"} | settings)

    def wait_for_same_offsets(self, partition: int = 0) -> None:
        """Waits until both sites have the same log start and high watermark."""
        eventually(
            lambda: (
                read_watermarks(self.a.bootstrap, TOPIC, partition)
                == read_watermarks(self.b.bootstrap, TOPIC, partition)
            ),
            within_s=60,
            message=lambda: (
                f"{TOPIC}-{partition}: a: {describe_partition(self.a.bootstrap, TOPIC, partition)}; "
                f"b: {describe_partition(self.b.bootstrap, TOPIC, partition)}"
            ),
        )

    def assert_same_records(self, partition: int = 0) -> None:
        self.wait_for_same_offsets(partition)
        for isolation in ("read_uncommitted", "read_committed"):
            records = read_records(self.a.bootstrap, TOPIC, partition, isolation=isolation)
            assert records == read_records(self.b.bootstrap, TOPIC, partition, isolation=isolation)

    def state(self, at: BrokerProcess | ProcessCluster, partition: int = 0) -> str:
        return str(mirror_status(at.bootstrap, TOPIC, partition).get("state"))

    def wait_for_state(self, at: BrokerProcess | ProcessCluster, state: str, partition: int = 0) -> dict[str, object]:
        """The status of the mirrored partition at this site, once it has this state."""
        eventually(
            lambda: self.state(at, partition) == state,
            within_s=60,
            message=lambda: f"state {state}; the status is {mirror_status(at.bootstrap, TOPIC, partition)}",
        )
        return mirror_status(at.bootstrap, TOPIC, partition)


def read_values(bootstrap: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in read_records(bootstrap, TOPIC, partition)]


def saved_segments(log_dir: Path, partition: int = 0) -> list[Path]:
    """Segments of saved diverged records. Unfinished folders, which a killed broker leaves, are
    ignored.
    """
    return sorted((log_dir / f"{TOPIC}-{partition}" / "diverged").glob("*-epoch-*[0-9]/*.log"))


def record_values(path: Path) -> list[bytes | None]:
    return [record.value for _, record in iter_records(path.read_bytes())]
