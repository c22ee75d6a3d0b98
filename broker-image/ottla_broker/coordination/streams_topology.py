"""A streams group's topology, applied to the existing topics (KIP-1071). Pure.

The topology names the topics that each subtopology reads. Their partition counts determine the
number of its tasks, and the partition counts of the internal topics that the broker creates:
repartition topics between subtopologies, and changelog topics, which hold state.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

import msgspec

from ottla_broker.coordination.streams_group_records import InternalTopic, StreamsTopologyValue, Subtopology
from ottla_broker.coordination.streams_tasks import Task
from ottla_broker.wire.errors import ErrorCode, KafkaError

PartitionCount = Callable[[str], int | None]
"""Returns the number of partitions of the topic with this name; None if it does not exist."""


class StreamsStatus(IntEnum):
    """The codes of StreamsGroupHeartbeat's statuses."""

    stale_topology = 0
    missing_source_topics = 1
    incorrectly_partitioned_topics = 2
    missing_internal_topics = 3
    shutdown_application = 4
    assignment_delayed = 5


class Status(NamedTuple):
    code: StreamsStatus
    detail: str


class ConfiguredTopology(msgspec.Struct, frozen=True):
    """`task_counts`: by subtopology; empty if source topics are missing or numbers of partitions do
    not match. `missing`: internal topics to create. `problem`: why the topology is not ready; None
    if it is."""

    epoch: int
    task_counts: Mapping[str, int] = msgspec.field(default_factory=dict)
    stateful: frozenset[str] = frozenset()
    missing: tuple[InternalTopic, ...] = ()
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    def check_tasks(self, tasks: Iterable[Task]) -> None:
        """Raises INVALID_REQUEST for a task that the application does not have."""
        for task in tasks:
            if not 0 <= task.partition < self.task_counts.get(task.subtopology_id, 0):
                raise KafkaError(
                    ErrorCode.invalid_request,
                    f"Subtopology {task.subtopology_id} has no task of partition {task.partition}.",
                )


class _NotConfigurable(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status.detail)
        self.status = status


def check_topology(topology: StreamsTopologyValue) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY for a changelog topic with a declared number of partitions,
    because that number follows from the source topics.
    """
    for part in topology.subtopologies:
        for topic in part.changelog_topics:
            if topic.partitions:
                raise KafkaError(
                    ErrorCode.streams_invalid_topology,
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}.",
                )


def check_copartition_groups(topology: StreamsTopologyValue) -> None:
    """Raises STREAMS_INVALID_TOPOLOGY for a copartition group with topics that its subtopology does
    not have.
    """
    for part in topology.subtopologies:
        for group in part.copartition_groups:
            places = [(at, len(part.source_topics)) for at in group.source_topics]
            places += [(at, len(part.repartition_source_topics)) for at in group.repartition_source_topics]
            if any(not 0 <= at < count for at, count in places):
                raise KafkaError(
                    ErrorCode.streams_invalid_topology,
                    f"A copartition group of subtopology {part.subtopology_id} names topics that it does not read.",
                )


def configure_topology(topology: StreamsTopologyValue, partition_count: PartitionCount) -> ConfiguredTopology:
    """The topology with its numbers of tasks, or with the problem of its topics. Raises
    STREAMS_INVALID_TOPOLOGY if the number of partitions of a repartition topic is neither declared
    nor determined by other topics.
    """
    try:
        _check_source_topics(topology, partition_count)
        counts = _repartition_counts(topology, partition_count)
        _enforce_copartitioning(topology, counts, partition_count)
        tasks = {part.subtopology_id: _task_count(part, counts, partition_count) for part in topology.subtopologies}
        missing = _missing_topics(topology, counts, tasks, partition_count)
    except _NotConfigurable as reason:
        return ConfiguredTopology(topology.epoch, problem=reason.status)
    stateful = frozenset(part.subtopology_id for part in topology.subtopologies if part.changelog_topics)
    problem = None
    if missing:
        names = ", ".join(topic.name for topic in missing)
        problem = Status(StreamsStatus.missing_internal_topics, f"Internal topics are missing: [{names}]")
    return ConfiguredTopology(topology.epoch, tasks, stateful, missing, problem)


def _check_source_topics(topology: StreamsTopologyValue, partition_count: PartitionCount) -> None:
    names = {name for part in topology.subtopologies for name in part.source_topics}
    if missing := sorted(name for name in names if partition_count(name) is None):
        raise _NotConfigurable(
            Status(StreamsStatus.missing_source_topics, f"Source topics {', '.join(missing)} are missing.")
        )


def _repartition_counts(topology: StreamsTopologyValue, partition_count: PartitionCount) -> dict[str, int]:
    """Number of partitions of each repartition topic: the declared number, or else the largest
    number of the topics that are read by the subtopologies that write to it.
    """
    declared = {topic.name: topic for part in topology.subtopologies for topic in part.repartition_source_topics}
    counts = {name: topic.partitions for name, topic in declared.items() if topic.partitions}
    while unknown := declared.keys() - counts.keys():
        found: dict[str, int] = {}
        for name in unknown:
            writers = [part for part in topology.subtopologies if name in part.repartition_sink_topics]
            read = [source for part in writers for source in input_topic_names(part)]
            known = [counts.get(one) if one in declared else partition_count(one) for one in read]
            if known and None not in known:
                found[name] = max(count for count in known if count is not None)
        if not found:
            raise KafkaError(
                ErrorCode.streams_invalid_topology,
                "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                "topology that cannot be resolved.",
            )
        counts |= found
    return counts


def input_topic_names(part: Subtopology) -> list[str]:
    return [*part.source_topics, *(topic.name for topic in part.repartition_source_topics)]


def _enforce_copartitioning(
    topology: StreamsTopologyValue, counts: dict[str, int], partition_count: PartitionCount
) -> None:
    """In each copartition group, gives repartition topics without a declared number of partitions
    the number of the other topics.
    """
    for part in topology.subtopologies:
        for group in part.copartition_groups:
            sources = [part.source_topics[at] for at in group.source_topics]
            repartition = [part.repartition_source_topics[at] for at in group.repartition_source_topics]
            fixed = {name: partition_count(name) or 0 for name in sources}
            fixed |= {topic.name: topic.partitions for topic in repartition if topic.partitions}
            if len(set(fixed.values())) > 1:
                listed = ", ".join(sorted(fixed))
                raise _NotConfigurable(
                    Status(
                        StreamsStatus.incorrectly_partitioned_topics,
                        f"Following topics do not have the same number of partitions: [{listed}]",
                    )
                )
            names = [topic.name for topic in repartition if not topic.partitions]
            wanted = max(fixed.values() or [counts[name] for name in names], default=0)
            counts |= dict.fromkeys(names, wanted)


def _task_count(part: Subtopology, counts: Mapping[str, int], partition_count: PartitionCount) -> int:
    return max((counts.get(name) or partition_count(name) or 0 for name in input_topic_names(part)), default=0)


def _missing_topics(
    topology: StreamsTopologyValue, counts: Mapping[str, int], tasks: Mapping[str, int], partition_count: PartitionCount
) -> tuple[InternalTopic, ...]:
    """Internal topics to create. One that exists with another number of partitions is an error:
    state would be restored from the wrong partition."""
    wanted: dict[str, InternalTopic] = {}
    for part in topology.subtopologies:
        for topic in part.repartition_source_topics:
            wanted[topic.name] = topic._replace(partitions=counts[topic.name])
        for topic in part.changelog_topics:
            if topic.name not in part.source_topics:  # a source topic can be its own changelog
                wanted[topic.name] = topic._replace(partitions=tasks[part.subtopology_id])
    for topic in wanted.values():
        if (found := partition_count(topic.name)) is not None and found != topic.partitions:
            raise _NotConfigurable(
                Status(
                    StreamsStatus.incorrectly_partitioned_topics,
                    f"Existing topic {topic.name} has different number of partitions: "
                    f"expected {topic.partitions}, found {found}",
                )
            )
    return tuple(topic for name, topic in sorted(wanted.items()) if partition_count(name) is None)


def internal_topic_names(topology: StreamsTopologyValue) -> Iterable[str]:
    for part in topology.subtopologies:
        yield from (topic.name for topic in (*part.repartition_source_topics, *part.changelog_topics))
