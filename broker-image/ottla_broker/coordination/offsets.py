"""Committed offsets of one partition's groups, and their expiry (KIP-211). No I/O."""

from collections.abc import Iterator
from uuid import UUID

from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.consumer_group import ConsumerGroup
from ottla_broker.coordination.records import OffsetCommit, OffsetCommitKey
from ottla_broker.coordination.streams_group import StreamsGroup

TopicOffsets = dict[str, dict[int, OffsetCommit]]
"""One group's commits: topic → partition → commit."""


class CommittedOffsets:
    """group → topic → partition → commit, without empty levels."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, TopicOffsets] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for topics in self._groups.values() for partitions in topics.values())

    def put(self, key: OffsetCommitKey, commit: OffsetCommit) -> None:
        group, topic, partition = key
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            topics[topic] = {partition: commit}
        else:
            partitions[partition] = commit

    def remove(self, key: OffsetCommitKey) -> None:
        group, topic, partition = key
        if (topics := self._groups.get(group)) is None or (partitions := topics.get(topic)) is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group]

    def apply(self, key: OffsetCommitKey, commit: OffsetCommit | None) -> None:
        """Applies a record; `commit` is None for a tombstone."""
        if commit is None:
            self.remove(key)
        else:
            self.put(key, commit)

    def group_ids(self) -> Iterator[str]:
        return iter(self._groups)

    def group_offsets(self, group: str) -> TopicOffsets:
        return self._groups.get(group, {})

    def get(self, group: str, topic: str, partition: int) -> OffsetCommit | None:
        return self.group_offsets(group).get(topic, {}).get(partition)

    def group_commits(self, group: str) -> Iterator[tuple[OffsetCommitKey, OffsetCommit]]:
        for topic, partitions in self.group_offsets(group).items():
            for partition, commit in partitions.items():
                yield OffsetCommitKey(group, topic, partition), commit

    def topic_keys(self, topic: str, topic_id: UUID | None) -> Iterator[OffsetCommitKey]:
        """Keys of commits for this topic, without those for a later topic of the same name."""
        for group, topics in self._groups.items():
            for partition, commit in topics.get(topic, {}).items():
                if commit.topic_id is None or topic_id is None or commit.topic_id == topic_id:
                    yield OffsetCommitKey(group, topic, partition)


def expired_offsets(
    group: ClassicGroup | ConsumerGroup | StreamsGroup, offsets: CommittedOffsets, *, retention_ms: int, now_ms: int
) -> list[OffsetCommitKey]:
    """Offsets that have expired at `now_ms` (wall clock).

    While a group has members, only offsets of topics without a subscriber expire, `retention_ms`
    after their commit. In a classic group they expire only if it is Stable and its subscriptions
    are known. Offsets of an empty classic group expire `retention_ms` after it became empty, those
    of a consumer or streams group (KIP-848, KIP-1071), and of a group that only stores offsets,
    `retention_ms` after their commit. An offset with an `expire_ms` of its own expires then.
    """
    if isinstance(group, ConsumerGroup | StreamsGroup) or group.protocol_type is None:
        empty_since_ms = -1
    elif group.state is GroupState.empty:
        empty_since_ms = group.state_since_ms
    elif group.state is GroupState.stable and group.uses_consumer_protocol and group.subscribed_topics is not None:
        empty_since_ms = -1
    else:
        return []

    def is_expired(commit: OffsetCommit) -> bool:
        if commit.expire_ms >= 0:
            return now_ms >= commit.expire_ms
        return now_ms - (commit.commit_ms if empty_since_ms < 0 else empty_since_ms) >= retention_ms

    return [
        key
        for key, commit in offsets.group_commits(group.id)
        if not group.is_subscribed_to(key.topic) and is_expired(commit)
    ]
