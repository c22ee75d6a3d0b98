"""What clients were told, and when: the material of the checks."""

from collections import defaultdict
from dataclasses import dataclass, field

Place = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True)
class Ack:
    """A batch that was acknowledged: where, by which broker, what its records hold."""

    place: Place
    offset: int
    values: tuple[bytes, ...]
    broker: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset commit that was acknowledged."""

    group: str
    place: Place
    offset: int
    at_s: float


@dataclass
class History:
    acks: list[Ack] = field(default_factory=list)
    sent: dict[bytes, str] = field(default_factory=dict)  # value → producer; whether or not it was acknowledged
    once: set[str] = field(default_factory=set)  # producers whose records may be there once only, and in order
    seen: dict[str, dict[Place, dict[int, bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    commits: list[Commit] = field(default_factory=list)
    committed: dict[tuple[str, Place], int] = field(default_factory=dict)  # the largest acknowledged
    high_watermarks: dict[Place, int] = field(default_factory=dict)  # the largest told
    topics: dict[str, bool | None] = field(default_factory=dict)  # there, not there, or not known
    problems: list[str] = field(default_factory=list)  # what a client saw and must not see
    retries: int = 0

    def consumed(self, group: str, place: Place, offset: int, value: bytes) -> None:
        before = self.seen[group][place].setdefault(offset, value)
        if before != value:
            self.problems.append(f"{group} read {value!r} at {place} offset {offset}, where it had read {before!r}")

    def told_high_watermark(self, place: Place, offset: int, known_when_asked: int) -> None:
        if offset < known_when_asked:
            self.problems.append(f"the high watermark of {place} went back from {known_when_asked} to {offset}")
        self.high_watermarks[place] = max(offset, self.high_watermarks.get(place, 0))

    def told_committed(self, group: str, place: Place, offset: int, known_when_asked: int) -> None:
        if offset < known_when_asked:
            self.problems.append(f"{group}'s commit of {place} went back from {known_when_asked} to {offset}")

    def acked_commit(self, commit: Commit) -> None:
        self.commits.append(commit)
        key = commit.group, commit.place
        self.committed[key] = max(commit.offset, self.committed.get(key, -1))
