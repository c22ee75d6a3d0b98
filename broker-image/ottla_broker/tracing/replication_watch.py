"""Watches when followers fetch from beyond the records of one request: the fetches that its
acknowledgement waits for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla_broker.log.validation import LogAppendInfo
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partition_leader import PartitionLeader


@dataclass(frozen=True, slots=True)
class ReplicaFetch:
    """The first fetch of a follower from beyond the records. `at_s`: when it arrived."""

    broker: int
    topic: str
    partition: int
    offset: int
    at_s: float


@dataclass(slots=True, eq=False)
class ReplicationWatch:
    """`clock`: for `ReplicaFetch.at_s`. The followers are checked whenever one of them has
    fetched, until the watch is stopped. `fetches`: by broker, of the followers that have all
    records of the request.
    """

    partition: Partition
    appended: LogAppendInfo
    clock: Callable[[], float]
    fetches: dict[int, ReplicaFetch] = field(default_factory=dict)

    def start(self) -> None:
        """Registers the watch with the `low_watermark_waiters`, which the leader notifies at each
        fetch of a follower.
        """
        self.partition.low_watermark_waiters.add(self.record_fetches)

    def stop(self) -> None:
        self.partition.low_watermark_waiters.remove(self.record_fetches)

    def record_fetches(self) -> None:
        """Adds to `fetches` the followers that now have all records of the request."""
        role = self.partition.role
        if not isinstance(role, PartitionLeader):
            return
        for follower in role.followers:
            if follower.log_end > self.appended.last_offset and follower.broker not in self.fetches:
                self.fetches[follower.broker] = ReplicaFetch(
                    follower.broker, self.partition.topic, self.partition.partition, follower.log_end, self.clock()
                )
