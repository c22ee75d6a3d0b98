"""What a partition's folder held when it was opened: what `log.recovery` hands to `PartitionLog`."""

from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.log.leader_epochs import LeaderEpochs
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.segments import Segments
from ottla_broker.log.snapshots import Snapshots


@dataclass(slots=True)
class Opened:
    """What `log.recovery` found on the disk, or made for a new partition."""

    segments: Segments
    start: int
    end: int
    recovery_point: int
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: Snapshots
    topic_id: UUID | None
    failed: str | None = None  # why the partition cannot be served: what is wrong, file and offset
    flaws: list[str] = field(default_factory=list)  # what was repaired, for the operator's log
