"""The rows of `ottla top`: what a cluster has, and how fast it changes, from two samples. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla_operator.cli.output import Row
from ottla_operator.formatting import format_brokers, format_count
from ottla_operator.kafka.cluster import OFFLINE, find_partition_problems
from ottla_operator.kafka.cluster_sample import ClusterSample
from ottla_operator.kafka.offsets import TopicPartition
from ottla_operator.kafka.topics import TopicDescription

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "brokers": ("broker", "address", "state", "leads", "replicas", "outOfSync", "bytes"),
    "topics": ("topic", "partitions", "replicas", "records", "recordsPerSecond", "bytes", "bytesPerSecond", "problem"),
    "groups": ("group", "kind", "state", "topics", "lag", "consumedPerSecond"),
    "pipelines": ("pipeline", "state", "rowsPerSecond", "lag", "lagSeconds", "restarts", "reportedAgo", "problem"),
    "topic": ("partition", "leader", "replicas", "isr", "start", "end", "recordsPerSecond", "bytes"),
    "group": ("topic", "partition", "committed", "end", "lag", "consumedPerSecond"),
}
"""View → its columns. `topic` and `group` show the partitions of one."""
IDS: Final = ("broker", "partition", "leader")
"""Columns whose numbers are ids."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Changes per second between two samples; 0 if `previous` is None."""

    previous: ClusterSample | None
    now: ClusterSample

    @property
    def elapsed_s(self) -> float:
        return 0.0 if self.previous is None else self.now.at_s - self.previous.at_s

    def all_records(self) -> float:
        """Records per second that were written to all partitions."""
        return sum(map(self.records, self.now.ends))

    def records(self, partition: TopicPartition) -> float:
        """Records per second that were written to the partition."""
        return self._rate(self.previous.ends if self.previous else {}, self.now.ends, partition)

    def consumed(self, group: str, partition: TopicPartition) -> float:
        """Records per second by which the group's committed offset advanced."""
        before = self.previous.committed.get(group, {}) if self.previous else {}
        return self._rate(before, self.now.committed.get(group, {}), partition)

    def bytes_by_topic(self) -> Mapping[str, float]:
        """Bytes per second by which the leaders' logs grew. A log that shrank, because segments
        were deleted, counts as 0. Empty if `previous` is None."""
        if self.previous is None or self.elapsed_s <= 0:
            return {}
        before, grown = _leader_sizes(self.previous), Counter[str]()
        for partition, size in _leader_sizes(self.now).items():
            grown[partition[0]] += max(0, size - before.get(partition, size))
        return {topic: size / self.elapsed_s for topic, size in grown.items()}

    def _rate(
        self, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int], partition: TopicPartition
    ) -> float:
        """0 if the offset went back, because the partition was created again or offsets were reset,
        and 0 if a sample lacks the partition.
        """
        if partition not in before or partition not in after or self.elapsed_s <= 0:
            return 0.0
        return max(0, after[partition] - before[partition]) / self.elapsed_s


def summarize_health(sample: ClusterSample) -> tuple[bool, str]:
    """Returns whether the cluster is healthy, and a sentence about it."""
    partition_count = sum(len(it.partitions) for it in sample.topics)
    problems = Counter(it.kind for it in find_partition_problems(sample.topics))
    down = [it.id for it in sample.cluster.brokers if it.is_fenced]
    messages = []
    if sample.cluster.controller < 0:
        messages.append("no controller")
    if down:
        messages.append(f"{format_brokers(down)} {'is' if len(down) == 1 else 'are'} down")
    messages += [f"{count} of {partition_count} partitions {kind}" for kind, count in sorted(problems.items())]
    return not messages, "; ".join(messages) or f"healthy: {format_count(partition_count, 'partition')} in sync"


def broker_rows(sample: ClusterSample) -> list[Row]:
    partitions = [it for topic in sample.topics for it in topic.partitions]
    leads = Counter(it.leader for it in partitions)
    replicas = Counter(broker for it in partitions for broker in it.replicas)
    out_of_sync = Counter(broker for it in partitions for broker in it.replicas if broker not in it.isr)
    return [
        {
            "broker": it.id,
            "address": f"{it.host}:{it.port}",
            "state": "down" if it.is_fenced else "controller" if it.id == sample.cluster.controller else "running",
            "leads": leads[it.id],
            "replicas": replicas[it.id],
            "outOfSync": out_of_sync[it.id],
            "bytes": sum(sample.sizes[it.id].values()) if it.id in sample.sizes else None,
        }
        for it in sample.cluster.brokers
    ]


def topic_rows(rates: Rates) -> list[Row]:
    sample = rates.now
    sizes, byte_rates = _topic_sizes(sample), rates.bytes_by_topic()
    problems: dict[str, Counter[str]] = {}
    for problem in find_partition_problems(sample.topics):
        problems.setdefault(problem.topic, Counter())[problem.kind] += 1
    return [
        {
            **_topic_columns(rates, topic),
            "bytes": sizes.get(topic.name),
            "bytesPerSecond": byte_rates.get(topic.name, 0.0),
            "problem": _describe_problems(problems.get(topic.name, Counter())),
        }
        for topic in sample.topics
    ]


def _topic_columns(rates: Rates, topic: TopicDescription) -> Row:
    """The columns of a topic from its name to `recordsPerSecond`."""
    sample, partitions = rates.now, [(topic.name, it.index) for it in topic.partitions]
    is_known = all(it in sample.ends and it in sample.starts for it in partitions)
    return {
        "topic": topic.name,
        "partitions": len(partitions),
        "replicas": topic.replication_factor,
        "records": sum(sample.ends[it] - sample.starts[it] for it in partitions) if is_known else None,
        "recordsPerSecond": sum(map(rates.records, partitions)),
    }


def _describe_problems(problems: Counter[str]) -> str:
    """The number of partitions of each kind, offline ones first."""
    return ", ".join(f"{problems[kind]} {kind}" for kind in sorted(problems, key=lambda kind: kind != OFFLINE))


def group_rows(rates: Rates) -> list[Row]:
    sample = rates.now
    rows: list[Row] = []
    for group in sample.groups:
        committed = sample.committed.get(group.id, {})
        rows.append(
            {
                "group": group.id,
                "kind": group.kind,
                "state": group.state,
                "topics": len({topic for topic, _ in committed}),
                "lag": sum(_lag(sample, partition, offset) or 0 for partition, offset in committed.items()),
                "consumedPerSecond": sum(rates.consumed(group.id, partition) for partition in committed),
            }
        )
    return rows


def pipeline_rows(sample: ClusterSample) -> list[Row]:
    """`reportedAgo`: seconds since the operator or `ottla up` last reported the pipeline."""
    return [
        {
            "pipeline": name,
            "state": stored.report.state,
            "rowsPerSecond": stored.report.input_rows_per_second,
            "lag": stored.report.lag_records,
            "lagSeconds": stored.report.lag_seconds,
            "restarts": stored.report.restarts,
            "reportedAgo": round(stored.age_seconds),
            "problem": stored.report.error.partition("\n")[0],
        }
        for name, stored in sample.pipelines.items()
    ]


def partition_rows(rates: Rates, name: str) -> list[Row]:
    """The partitions of a topic; none if it does not exist."""
    sample = rates.now
    topic = next((it for it in sample.topics if it.name == name), None)
    sizes = _leader_sizes(sample)
    return [
        {
            "partition": it.index,
            "leader": it.leader if it.leader >= 0 else None,
            "replicas": list(it.replicas),
            "isr": list(it.isr),
            "start": sample.starts.get((name, it.index)),
            "end": sample.ends.get((name, it.index)),
            "recordsPerSecond": rates.records((name, it.index)),
            "bytes": sizes.get((name, it.index)),
        }
        for it in (topic.partitions if topic else ())
    ]


def committed_rows(rates: Rates, group: str) -> list[Row]:
    """The partitions that a group has committed offsets of."""
    sample = rates.now
    return [
        {
            "topic": partition[0],
            "partition": partition[1],
            "committed": offset,
            "end": sample.ends.get(partition),
            "lag": _lag(sample, partition, offset),
            "consumedPerSecond": rates.consumed(group, partition),
        }
        for partition, offset in sorted(sample.committed.get(group, {}).items())
    ]


def sort_rows(rows: Sequence[Row], column: str) -> list[Row]:
    """Text from A to Z, ids from the smallest, other numbers from the largest; what is unknown
    comes last.
    """

    def key(row: Row) -> tuple[bool, Any]:
        match row.get(column):
            case None:
                return True, 0
            case int() | float() as number:
                return False, number if column in IDS else -number
            case other:
                return False, other

    return sorted(rows, key=key)


def _lag(sample: ClusterSample, partition: TopicPartition, committed: int) -> int | None:
    return max(0, sample.ends[partition] - committed) if partition in sample.ends else None


def _leader_sizes(sample: ClusterSample) -> dict[TopicPartition, int]:
    """Bytes of each partition's leader."""
    found: dict[TopicPartition, int] = {}
    for topic in sample.topics:
        for info in topic.partitions:
            partition = (topic.name, info.index)
            if partition in sample.sizes.get(info.leader, {}):
                found[partition] = sample.sizes[info.leader][partition]
    return found


def _topic_sizes(sample: ClusterSample) -> dict[str, int]:
    """Bytes of each topic over its leaders."""
    found: Counter[str] = Counter()
    for (topic, _), size in _leader_sizes(sample).items():
        found[topic] += size
    return dict(found)
