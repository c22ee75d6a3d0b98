"""The offsets that a group would have after a reset. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ottla_broker.log.file_names import TopicPartition

ResetKind = Literal["earliest", "latest", "offset", "time", "shift"]
RESET_KINDS: Final = ("earliest", "latest", "offset", "time", "shift")


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """`at`: an offset, milliseconds since 1970, or the offsets to move by, by the kind."""

    kind: ResetKind
    at: int = 0


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """A partition in a dry run. `committed`: the group's offset now. `target`: the next offset that
    the group would read; −1: unknown. `end`: the high watermark; −1: unknown.
    """

    topic: str
    partition: int
    committed: int
    target: int
    end: int

    @property
    def lag(self) -> int:
        """Lag after the reset; −1 if it is unknown."""
        return max(0, self.end - self.target) if min(self.end, self.target) >= 0 else -1


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The committed offset of a partition, `before` and `after`."""

    topic: str
    partition: int
    before: int
    after: int

    @property
    def undo(self) -> "OffsetChange":
        return OffsetChange(self.topic, self.partition, self.after, self.before)


def plan_changes(resets: Iterable[PartitionReset]) -> list[OffsetChange]:
    """The changes of the partitions whose target is known and differs from the committed offset."""
    return [
        OffsetChange(one.topic, one.partition, one.committed, one.target)
        for one in resets
        if 0 <= one.target != one.committed
    ]


def write_changes(changes: Iterable[OffsetChange]) -> str:
    """One line per change: topic, partition, offset before and after."""
    return "".join(f"{one.topic},{one.partition},{one.before},{one.after}\n" for one in changes)


def parse_changes(text: str) -> list[OffsetChange]:
    """Parses what `write_changes` has written. Raises ValueError."""
    changes = []
    for line in text.split():
        topic, *numbers = line.split(",")
        if len(numbers) != 3 or not all(number.isdecimal() and len(number) < 20 for number in numbers):
            raise ValueError(f"expected topic,partition,offset before,offset after, not {line[:100]!r}")
        changes.append(OffsetChange(topic, *map(int, numbers)))
    return changes


def find_conflicts(
    changes: Iterable[OffsetChange], committed: Mapping[TopicPartition, int]
) -> list[tuple[OffsetChange, int | None]]:
    """Changes whose `before` is not the committed offset, each with the committed offset, or None
    without one.
    """
    with_committed = [(one, committed.get((one.topic, one.partition))) for one in changes]
    return [(one, now) for one, now in with_committed if now != one.before]


def choose_offset(target: ResetTarget, committed: int, start: int, end: int, at_time: int | None) -> int:
    """The offset that a reset would commit, as Kafka's tools choose it: at least the start and at
    most the end. −1 if one of the offsets that it depends on is unknown. `at_time`: the first
    offset at or after the target's time; −1: no record is as new, and the end is chosen; None:
    unknown.
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
            if at_time is None:
                return -1
            chosen = end if at_time < 0 else at_time
        case "shift":
            chosen = committed + target.at
    return min(max(chosen, start), end)


def write_offsets(offsets: Iterable[tuple[str, int, int]]) -> str:
    """Topics, partitions and offsets as lines that `kafka-consumer-groups.sh --reset-offsets
    --from-file` reads. Negative offsets, which are unknown, are left out.
    """
    return "".join(f"{topic},{partition},{offset}\n" for topic, partition, offset in offsets if offset >= 0)
