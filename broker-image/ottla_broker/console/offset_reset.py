"""The offsets that a group would have after a reset. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

ResetKind = Literal["earliest", "latest", "offset", "time", "shift"]
RESET_KINDS: Final = ("earliest", "latest", "offset", "time", "shift")


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """`at`: an offset, milliseconds since 1970, or the offsets to move by, by the kind."""

    kind: ResetKind
    at: int = 0


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """`target`: the next offset that the group would read; −1: unknown."""

    topic: str
    partition: int
    committed: int
    target: int
    end: int

    @property
    def lag(self) -> int:
        """After the reset."""
        return max(0, self.end - self.target) if min(self.end, self.target) >= 0 else -1


def choose_offset(target: ResetTarget, committed: int, start: int, end: int, at_time: int) -> int:
    """Within the partition's offsets, as Kafka's tools choose it. `at_time`: the first offset at or
    after the target's time; −1: no record is as new, and the end is chosen. −1 if the start or end
    is unknown.
    """
    if min(start, end) < 0:
        return -1
    match target.kind:
        case "earliest":
            chosen = start
        case "latest":
            chosen = end
        case "offset":
            chosen = target.at
        case "time":
            chosen = end if at_time < 0 else at_time
        case "shift":
            chosen = committed + target.at
    return min(max(chosen, start), end)


def write_offsets(offsets: Iterable[tuple[str, int, int]]) -> str:
    """Topics, partitions and offsets as lines that `kafka-consumer-groups.sh --reset-offsets
    --from-file` reads.
    """
    return "".join(f"{topic},{partition},{offset}\n" for topic, partition, offset in offsets if offset >= 0)
