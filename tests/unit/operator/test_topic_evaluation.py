"""Conditions of Topics: which resource owns a name, and whether the topic matches its spec."""

from typing import Any

from ottla_operator.plan.conditions import Ready, Reconciling, Stalled
from ottla_operator.plan.stored_resource import StoredResource
from ottla_operator.plan.topics import ObservedTopic, TopicResource, evaluate_topic, plan_topic_changes, topic_owners
from ottla_operator.resources.topic import Topic
from tests.unit.operator.samples import topic


def resource(name: str = "flights", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> TopicResource:
    metadata = {"name": name, "namespace": "events", "creationTimestamp": created}
    return StoredResource.parse(Topic, {**topic(name, **spec), "metadata": metadata})


def test_the_oldest_resource_owns_the_name() -> None:
    old = resource("b", "2026-01-01T00:00:00Z", topicName="flights")
    new = resource("a", "2026-02-01T00:00:00Z", topicName="flights")
    owners = topic_owners([new, old])
    assert owners == {"flights": old}
    readiness = evaluate_topic(new, None, (), owners)
    assert isinstance(readiness, Stalled) and "older Topic b" in readiness.message


def test_an_invalid_resource_owns_nothing_and_is_stalled() -> None:
    invalid = resource(config={"retention.ms": [1]})
    assert topic_owners([invalid]) == {}
    readiness = evaluate_topic(invalid, None, (), {})
    assert isinstance(readiness, Stalled) and "retention.ms" in readiness.message


def test_a_topic_is_ready_when_nothing_is_left_to_change() -> None:
    it = resource(partitions=3)
    assert it.parsed
    observed = ObservedTopic("flights", 3, 1)
    assert evaluate_topic(it, observed, plan_topic_changes(it.parsed, observed), {}) == Ready(
        "topic flights has 3 partitions."
    )
    fewer = ObservedTopic("flights", 2, 1)
    assert isinstance(evaluate_topic(it, fewer, plan_topic_changes(it.parsed, fewer), {}), Reconciling)
    more = ObservedTopic("flights", 4, 1)
    assert isinstance(evaluate_topic(it, more, plan_topic_changes(it.parsed, more), {}), Stalled)
