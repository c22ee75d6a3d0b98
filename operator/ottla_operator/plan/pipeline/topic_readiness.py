"""Decides whether a Pipeline's topics exist, so that its driver may start.

A topic that has a Topic resource has to be Ready. A topic without one belongs to clients: a source
has to exist; a sink may be created by its first record.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla_operator.plan.conditions import ExtraCondition, describe_unready, kstatus
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline
from ottla_operator.resources.topic import stored_topic_name

TOPICS_READY: Final = "TopicsReady"


@dataclass(frozen=True, slots=True)
class UnreadyTopic:
    """A topic that the driver has to wait for."""

    topic: str
    reason: str

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.reason}"


def source_topics(pipeline: Pipeline) -> list[str]:
    return sorted({it.topic for it in pipeline.spec.sources.values()})


def read_topics(pipeline: Pipeline) -> list[str]:
    """Topics of sources, and of sinks with `compareWith` both topics that are compared."""
    compared = {
        name for it in pipeline.spec.sinks if it.topic and it.compare_with for name in (it.topic, it.compare_with)
    }
    return sorted({*source_topics(pipeline), *compared})


def written_topics(pipeline: Pipeline) -> list[str]:
    """Topics that rows and dead letters are written to."""
    dead_letter = pipeline.spec.dead_letter
    return sorted(
        {it.topic for it in pipeline.spec.sinks if it.topic} | ({dead_letter.topic} if dead_letter else set())
    )


def sink_topics(pipeline: Pipeline) -> list[str]:
    """Topics that are written to, and that are not sources."""
    sources = set(source_topics(pipeline))
    return [it for it in written_topics(pipeline) if it not in sources]


def resources_by_topic(resources: Iterable[Json]) -> dict[str, Json]:
    """Topic's name → its Topic resource; if it has several, a Ready one, or else the oldest."""
    found: dict[str, Json] = {}
    for resource in sorted(
        resources, key=lambda it: (kstatus(it) != "Current", it["metadata"].get("creationTimestamp", ""))
    ):
        found.setdefault(stored_topic_name(resource), resource)
    return found


def unmanaged_sources(pipeline: Pipeline, resources: Mapping[str, Json]) -> list[str]:
    """Sources without a Topic resource: whether they exist has to be asked of the brokers."""
    return [it for it in source_topics(pipeline) if it not in resources]


def find_unready_topics(
    pipeline: Pipeline, resources: Mapping[str, Json], existing: Collection[str] | str
) -> list[UnreadyTopic]:
    """`resources`: by topic. `existing`: those of `unmanaged_sources` that exist, or why no broker
    could be asked.
    """
    sources = source_topics(pipeline)
    found: list[UnreadyTopic] = []
    for topic in [*sources, *sink_topics(pipeline)]:
        if topic in resources:
            if kstatus(resources[topic]) != "Current":
                name = resources[topic]["metadata"]["name"]
                found.append(UnreadyTopic(topic, f"Topic {name} is not ready: {describe_unready(resources[topic])}"))
        elif topic in sources:
            if isinstance(existing, str):
                found.append(UnreadyTopic(topic, existing))
            elif topic not in existing:
                found.append(UnreadyTopic(topic, "it does not exist, and no Topic resource describes it"))
    return found


def topics_ready_condition(unready: Collection[UnreadyTopic]) -> ExtraCondition:
    if not unready:
        return ExtraCondition(TOPICS_READY, True, "TopicsReady", "All topics are ready.")
    return ExtraCondition(TOPICS_READY, False, "WaitingForTopics", "; ".join(map(str, unready)))
