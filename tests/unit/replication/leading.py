"""A partition on a real log in a folder, led by broker 1 among peers that a test plays."""

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
class Peers:
    """`joinable`: broker → the epoch that is registered and unfenced; `registered`: of brokers whose fetches must be of that epoch to count."""

    time_s: float = 100.0
    joinable: dict[int, int] = field(default_factory=lambda: {2: 20, 3: 30})
    registered: dict[int, int] = field(default_factory=dict)
    proposed: list[tuple[int, ...]] = field(default_factory=list)

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


def state(isr: tuple[int, ...] = (1, 2, 3), **how: object) -> PartitionRecord:
    return PartitionRecord(**({"topic": TOPIC, "partition": 0, "replicas": (1, 2, 3), "isr": isr, "leader": ME} | how))  # type: ignore[arg-type]


def led(folder: Path, peers: Peers, isr: tuple[int, ...] = (1, 2, 3), records: int = 0, **config: int) -> Partition:
    """Broker 1's replica, with some records in it from an earlier epoch, from which on it leads in epoch 1."""
    log = create_log(Storage(OsDisk(), Runtime()), str(folder / "t-0"), "t", 0, TOPIC, LogConfig(**config))  # type: ignore[arg-type]
    for _ in range(records):
        log.append_as_leader(BATCH, leader_epoch=0, now_ms=1)
    return Partition("t", TOPIC, 0, log, state(isr, leader_epoch=1), ME, lambda: 1, peers, peers.propose)


def committed(partition: Partition, **change: object) -> None:
    """The metadata move on by one partition epoch."""
    old = partition.registration
    partition.update_registration(msgspec.structs.replace(old, partition_epoch=old.partition_epoch + 1, **change))


def fetch(partition: Partition, broker: int, offset: int) -> None:
    partition.leader.record_fetch(broker, broker * 10, offset, 0)
