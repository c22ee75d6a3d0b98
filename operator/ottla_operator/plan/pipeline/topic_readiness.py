"""Whether the topics of a Pipeline are there, so that its driver may start.

A topic that has a Topic resource has to be as that wishes. One that has none belongs to clients: it has to be there to be read; where rows go, the brokers may
make it at the first of them.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ottla_operator.plan.conditions import READY, ExtraCondition, kstatus
from ottla_operator.resources.model import Json
from ottla_operator.resources.pipeline import Pipeline

ASPECT = "TopicsReady"


@dataclass(frozen=True, slots=True)
class UnreadyTopic:
    """A topic that the pipeline has to wait for."""

    topic: str
    reason: str

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.reason}"


def source_topics(pipeline: Pipeline) -> list[str]:
    return sorted({it.topic for it in pipeline.spec.sources.values()})


def sink_topics(pipeline: Pipeline) -> list[str]:
    letters = pipeline.spec.dead_letter
    found = {it.topic for it in pipeline.spec.sinks if it.topic} | ({letters.topic} if letters else set())
    return sorted(found - set(source_topics(pipeline)))


def resources_by_topic(resources: Iterable[Json]) -> dict[str, Json]:
    """Topic's name → its Topic resource: of several, the one that is ready, or else the oldest."""
    found: dict[str, Json] = {}
    for it in sorted(resources, key=lambda it: (kstatus(it) != "Current", it["metadata"].get("creationTimestamp", ""))):
        found.setdefault(it["spec"].get("topicName") or it["metadata"]["name"], it)
    return found


def unmanaged_sources(pipeline: Pipeline, resources: Mapping[str, Json]) -> list[str]:
    """Topics to be read that no Topic resource speaks of: brokers are to be asked for them."""
    return [it for it in source_topics(pipeline) if it not in resources]


def find_unready_topics(
    pipeline: Pipeline, resources: Mapping[str, Json], on_brokers: Collection[str] | str
) -> list[UnreadyTopic]:
    """`resources`: see `by_topic`. `on_brokers`: those of `unowned` that are there, or why nobody could be asked."""
    found: list[UnreadyTopic] = []
    for topic in [*source_topics(pipeline), *sink_topics(pipeline)]:
        if topic in resources:
            if kstatus(resources[topic]) != "Current":
                found.append(UnreadyTopic(topic, _said(resources[topic])))
        elif topic in source_topics(pipeline):
            if isinstance(on_brokers, str):
                found.append(UnreadyTopic(topic, on_brokers))
            elif topic not in on_brokers:
                found.append(UnreadyTopic(topic, "it does not exist, and no Topic resource speaks of it"))
    return found


def topics_ready_condition(waiting: Collection[UnreadyTopic]) -> ExtraCondition:
    if not waiting:
        return ExtraCondition(ASPECT, True, "Ready", "Every topic is there.")
    return ExtraCondition(ASPECT, False, "Waiting", "; ".join(map(str, waiting)))


def _said(resource: Json) -> str:
    conditions = (resource.get("status") or {}).get("conditions") or []
    ready: Json = next((it for it in conditions if it["type"] == READY), {})
    return f"Topic {resource['metadata']['name']} is not ready: {ready.get('message', 'nobody has looked at it yet')}"
