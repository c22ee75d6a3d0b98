"""What clients were told, and when: the material of the checks."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

Place = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True)
class Ack:
    """A batch that was acknowledged by the whole ISR: where, by which broker (which may have brought it to another), what its records hold."""

    place: Place
    topic_id: UUID
    offset: int
    values: tuple[bytes, ...]
    broker: int
    at_s: float
    producer: str


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset commit that was acknowledged."""

    group: str
    place: Place
    offset: int
    at_s: float


@dataclass
class TopicFate:
    """A topic as admins were told. `there`: None while it is not known. `partitions`: at least so many. `leaving`: its deletion has been asked for.
    `second`: there was one of that name before. `settings`: None for a value whose change is not known to have happened."""

    there: bool | None = None
    partitions: int = 0
    leaving: bool = False
    second: bool = False
    settings: dict[str, str | None] = field(default_factory=dict)

    @property
    def mortal(self) -> bool:
        """What was acknowledged in a topic of this name may be gone with it."""
        return self.leaving or self.second


@dataclass
class History:
    acks: list[Ack] = field(default_factory=list)
    acks_of: dict[str, int] = field(
        default_factory=lambda: defaultdict(int)
    )  # producer → acknowledged batches, of any strength
    sent: dict[bytes, str] = field(default_factory=dict)  # value → producer; whether or not it was acknowledged
    once: set[str] = field(default_factory=set)  # producers whose records may be there once only, and in order
    seen: dict[str, dict[Place, dict[int, bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    commits: list[Commit] = field(default_factory=list)
    committed: dict[tuple[str, Place], int] = field(default_factory=dict)  # the largest acknowledged
    high_watermarks: dict[Place, dict[int, int]] = field(default_factory=dict)  # of each leader epoch the largest told
    deleted: dict[Place, int] = field(default_factory=dict)  # records below this have been asked to go
    topics: dict[str, TopicFate] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # what a client saw and must not see
    retries: int = 0
    tell: Callable[[str], None] = lambda _: None  # hears of problems when they are found

    def problem(self, what: str) -> None:
        self.problems.append(what)
        self.tell(f"PROBLEM: {what}")

    def acked(self, ack: Ack) -> None:
        self.acks.append(ack)
        self.acks_of[ack.producer] += 1

    def consumed(self, group: str, place: Place, offset: int, value: bytes) -> None:
        before = self.seen[group][place].setdefault(offset, value)
        if before != value:
            self.problem(f"{group} read {value!r} at {place} offset {offset}, where it had read {before!r}")

    def high_watermark(self, place: Place, epoch: int) -> int:
        """The largest that anybody was told by leaders of this epoch or an older one."""
        told = self.high_watermarks.get(place, {})
        return max((offset for of, offset in told.items() if of <= epoch), default=0)

    def told_high_watermark(self, place: Place, epoch: int, offset: int, known_when_asked: int) -> None:
        """`known_when_asked`: what `high_watermark` was when the question was sent. Leaders of an older epoch that do not know yet that they
        lead no more may tell less than newer ones have told; a client that has heard of the newer epoch does not ask them."""
        if offset < known_when_asked:
            self.problem(
                f"the high watermark of {place} went back from {known_when_asked} to {offset} in epoch {epoch}"
            )
        told = self.high_watermarks.setdefault(place, {})
        told[epoch] = max(offset, told.get(epoch, 0))

    def told_end(self, place: Place) -> int:
        return max(self.high_watermarks.get(place, {0: 0}).values())

    def told_committed(self, group: str, place: Place, offset: int, known_when_asked: int) -> None:
        if offset < known_when_asked:
            self.problem(f"{group}'s commit of {place} went back from {known_when_asked} to {offset}")

    def acked_commit(self, commit: Commit) -> None:
        self.commits.append(commit)
        key = commit.group, commit.place
        self.committed[key] = max(commit.offset, self.committed.get(key, -1))

    def living(self) -> Iterator[tuple[str, TopicFate]]:
        """Topics that are there for certain."""
        return ((name, fate) for name, fate in self.topics.items() if fate.there)
