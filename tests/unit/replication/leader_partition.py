"""A partition that broker 1 leads, with its log in a folder. The test plays the followers."""

from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import msgspec

from ottla_broker.log.config import LogConfig
from ottla_broker.log.disk import OsDisk
from ottla_broker.log.recovery import create_log
from ottla_broker.log.storage import Storage
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication.partition import Partition
from ottla_broker.runtime import Runtime
from ottla_broker.wire.records import Record, encode_batch

ME = 1
TOPIC = UUID(int=7)
BATCH = encode_batch([Record(1, None, b"v")])


@dataclass
class FakeClusterView:
    """The leader's view of the cluster, as the test sets it. `joinable`: epochs of unfenced
    brokers. `registered`: broker epochs that fetches must have; others may have any. `proposed`:
    proposed ISRs. `in_session`: the controller has this broker's heartbeats.
    """

    time_s: float = 100.0
    joinable: dict[int, int] = field(default_factory=lambda: {2: 20, 3: 30})
    registered: dict[int, int] = field(default_factory=dict)
    proposed: list[tuple[int, ...]] = field(default_factory=list)
    in_session: bool = True

    def is_in_session(self) -> bool:
        return self.in_session

    def now_s(self) -> float:
        return self.time_s

    def may_join(self, broker: int, epoch: int) -> bool:
        return self.joinable.get(broker) == epoch

    def is_alive(self, broker: int) -> bool:
        return broker in self.joinable

    def is_registered(self, broker: int, epoch: int) -> bool:
        return self.registered.get(broker, epoch) == epoch

    def propose(self, partition: Partition) -> None:
        assert partition.pending_isr_change is not None
        self.proposed.append(partition.pending_isr_change.isr)


def partition_record(isr: tuple[int, ...] = (1, 2, 3), **fields: object) -> PartitionRecord:
    defaults = {"topic": TOPIC, "partition": 0, "replicas": (1, 2, 3), "isr": isr, "leader": ME}
    return PartitionRecord(**(defaults | fields))  # type: ignore[arg-type]


def create_leader(
    folder: Path, view: FakeClusterView, isr: tuple[int, ...] = (1, 2, 3), records: int = 0, **config: int
) -> Partition:
    """Broker 1's replica, which leads in epoch 1. `records`: number of records of epoch 0 in the
    log.
    """
    log = create_log(Storage(OsDisk(), Runtime()), str(folder / "t-0"), "t", 0, TOPIC, LogConfig(**config))  # type: ignore[arg-type]
    for _ in range(records):
        log.append_as_leader(BATCH, leader_epoch=0, now_ms=1)
    return Partition("t", TOPIC, 0, log, partition_record(isr, leader_epoch=1), ME, lambda: 1, view, view.propose)


def update_metadata(partition: Partition, **change: object) -> None:
    """Applies a change of the partition's metadata, which increments the partition epoch."""
    old = partition.registration
    partition.update_registration(msgspec.structs.replace(old, partition_epoch=old.partition_epoch + 1, **change))


def record_fetch(partition: Partition, broker: int, offset: int) -> None:
    """A fetch of this follower at its log end `offset`."""
    partition.leader.record_fetch(broker, broker * 10, offset, 0)
