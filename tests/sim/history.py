"""Observations of the clients of a run, with times: the input of the checks."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

TopicPartition = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True)
class Ack:
    """A batch that the whole ISR acknowledged.

    `broker` is the one that responded; it may have forwarded the batch. `values` are those of its
    records.
    """

    topic_partition: TopicPartition
    topic_id: UUID
    offset: int
    values: tuple[bytes, ...]
    broker: int
    at_s: float
    producer: str


@dataclass(frozen=True, slots=True)
class Commit:
    """An acknowledged offset commit."""

    group: str
    topic_partition: TopicPartition
    offset: int
    at_s: float


@dataclass
class ExpectedTopic:
    """A topic according to the responses to administrators.

    `exists` is None while unknown. The topic has at least `partitions`. A value in `settings` is
    None if it is unknown whether its change was applied.
    """

    exists: bool | None = None
    partitions: int = 0
    deletion_requested: bool = False
    is_recreated: bool = False
    settings: dict[str, str | None] = field(default_factory=dict)

    @property
    def may_lose_records(self) -> bool:
        """True if acknowledged records may be gone, because a topic of this name was deleted."""
        return self.deletion_requested or self.is_recreated


Access = tuple[str, str]
"""The kind ("rule", "credential" or "quota") and the name of an entry."""


@dataclass
class History:
    acks: list[Ack] = field(default_factory=list)
    # producer → number of batches that were acknowledged, or sent with acks=0
    ack_counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    sent: dict[bytes, str] = field(default_factory=dict)  # value → producer, acknowledged or not
    idempotent_producers: set[str] = field(default_factory=set)  # their records must be unique and ordered
    consumed: dict[str, dict[TopicPartition, dict[int, bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    commits: list[Commit] = field(default_factory=list)
    # the largest acknowledged offset
    committed_offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    # by leader epoch, the largest observed
    high_watermarks: dict[TopicPartition, dict[int, int]] = field(default_factory=dict)
    # offsets below which deletion was requested
    deletion_requests: dict[TopicPartition, int] = field(default_factory=dict)
    topics: dict[str, ExpectedTopic] = field(default_factory=dict)
    access: dict[Access, bool | None] = field(default_factory=dict)  # whether it exists; None: unknown
    # (group, partition) → the member that owns it, and until when at least
    owners: dict[tuple[str, TopicPartition], tuple[str, float]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)  # observations of clients that must not happen

    on_violation: Callable[[str], None] = lambda _: None

    def record_violation(self, what: str) -> None:
        self.violations.append(what)
        self.on_violation(f"VIOLATION: {what}")

    def record_ack(self, ack: Ack) -> None:
        self.acks.append(ack)
        self.ack_counts[ack.producer] += 1

    def record_consumed(self, group: str, tp: TopicPartition, offset: int, value: bytes) -> None:
        before = self.consumed[group][tp].setdefault(offset, value)
        if before != value:
            self.record_violation(f"{group} read {value!r} at {tp} offset {offset}, where it had read {before!r}")

    def high_watermark(self, tp: TopicPartition, epoch: int) -> int:
        """The largest high watermark observed from leaders of this epoch or an older one."""
        observed = self.high_watermarks.get(tp, {})
        return max((offset for known_epoch, offset in observed.items() if known_epoch <= epoch), default=0)

    def record_high_watermark(self, tp: TopicPartition, epoch: int, offset: int, known_at_request: int) -> None:
        """Records a high watermark. `known_at_request` is what `high_watermark` was when the
        request was sent.

        Leaders of an older epoch that have not learned of their successor may return less than
        newer ones; a client that knows the newer epoch does not ask them.
        """
        if offset < known_at_request:
            self.record_violation(
                f"the high watermark of {tp} went back from {known_at_request} to {offset} in epoch {epoch}"
            )
        observed = self.high_watermarks.setdefault(tp, {})
        observed[epoch] = max(offset, observed.get(epoch, 0))

    def highest_watermark(self, tp: TopicPartition) -> int:
        return max(self.high_watermarks.get(tp, {0: 0}).values())

    def check_committed(self, group: str, tp: TopicPartition, offset: int, known_at_request: int) -> None:
        """Checks a committed offset that was read. `known_at_request`: the largest acknowledged
        commit when the request was sent.
        """
        if offset < known_at_request:
            self.record_violation(f"{group}'s commit of {tp} went back from {known_at_request} to {offset}")

    def record_commit(self, commit: Commit) -> None:
        self.commits.append(commit)
        key = commit.group, commit.topic_partition
        self.committed_offsets[key] = max(commit.offset, self.committed_offsets.get(key, -1))

    def record_owner(self, group: str, tp: TopicPartition, member: str, now_s: float, until_s: float) -> None:
        """Records that a response gave a partition to a member, at least until `until_s`, when the
        member's session ends. It is a violation if another member's time has not ended and that
        member has not given up the partition."""
        owner, owned_until_s = self.owners.get((group, tp), (member, 0.0))
        if owner != member and owned_until_s > now_s:
            self.record_violation(f"two owners: {group} assigned {tp} to {member}, while {owner} still has it")
        self.owners[group, tp] = member, until_s

    def remove_owner(self, group: str, tp: TopicPartition, member: str) -> None:
        if self.owners.get((group, tp), ("", 0.0))[0] == member:
            del self.owners[group, tp]

    def existing_topics(self) -> Iterator[tuple[str, ExpectedTopic]]:
        """Topics that certainly exist."""
        return ((name, topic_state) for name, topic_state in self.topics.items() if topic_state.exists)
