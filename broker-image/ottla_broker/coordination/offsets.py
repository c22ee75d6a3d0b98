"""Committed offsets of one partition's groups, and which of them have outlived their use (KIP-211). No I/O."""

from collections.abc import Iterator
from uuid import UUID

from ottla_broker.coordination.classic_group import ClassicGroup, GroupState
from ottla_broker.coordination.records import OffsetCommit, OffsetCommitKey

TopicOffsets = dict[str, dict[int, OffsetCommit]]


class Offsets:
    """group → topic → partition → commit; nothing empty is kept."""

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

    def groups(self) -> Iterator[str]:
        return iter(self._groups)

    def of(self, group: str) -> TopicOffsets:
        return self._groups.get(group, {})

    def get(self, group: str, topic: str, partition: int) -> OffsetCommit | None:
        return self.of(group).get(topic, {}).get(partition)

    def keys_of(self, group: str) -> Iterator[tuple[OffsetCommitKey, OffsetCommit]]:
        for topic, partitions in self.of(group).items():
            for partition, commit in partitions.items():
                yield OffsetCommitKey(group, topic, partition), commit

    def of_topic(self, topic: str, topic_id: UUID | None) -> Iterator[OffsetCommitKey]:
        """Commits for this topic, not those for another one of the same name that came after it."""
        for group, topics in self._groups.items():
            for partition, commit in topics.get(topic, {}).items():
                if commit.topic_id is None or topic_id is None or commit.topic_id == topic_id:
                    yield OffsetCommitKey(group, topic, partition)


def expired(group: ClassicGroup, offsets: Offsets, *, retention_ms: int, now_ms: int) -> list[OffsetCommitKey]:
    """What may go. While a group has members, only offsets of topics that they do not read any more (and only if we can
    know what they read); once it is empty, everything, counted from when it became empty; of a group that only stores
    offsets, each one counted from its commit. `now_ms`: wall clock."""
    if group.protocol_type is None:
        since_empty = False
    elif group.state is GroupState.empty:
        since_empty = True
    elif group.state is GroupState.stable and group.uses_consumer_protocol and group.subscribed is not None:
        since_empty = False
    else:
        return []

    def is_over(commit: OffsetCommit) -> bool:
        if commit.expire_ms >= 0:
            return now_ms >= commit.expire_ms
        since = group.state_since_ms if since_empty and group.state_since_ms >= 0 else commit.commit_ms
        return now_ms - since >= retention_ms

    return [
        key for key, commit in offsets.keys_of(group.id) if not group.is_subscribed_to(key.topic) and is_over(commit)
    ]
