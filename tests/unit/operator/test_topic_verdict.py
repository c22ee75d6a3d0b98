"""What is said of Topics: who owns a name, and whether the topic is as wished."""

from typing import Any

from ottla_operator.plan.conditions import Ready, Reconciling, Stalled
from ottla_operator.plan.topic_verdict import TopicResource, evaluate_topic, topic_owners
from ottla_operator.plan.topics import ObservedTopic, changes
from tests.unit.operator.samples import topic


def wish(name: str = "flights", made: str = "2026-01-01T00:00:00Z", **spec: Any) -> TopicResource:
    data = topic(name, **spec)
    return TopicResource.of({**data, "metadata": {"name": name, "namespace": "events", "creationTimestamp": made}})


def test_the_oldest_resource_owns_the_name() -> None:
    old = wish("b", "2026-01-01T00:00:00Z", topicName="flights")
    new = wish("a", "2026-02-01T00:00:00Z", topicName="flights")
    good = topic_owners([new, old])
    assert good == {"flights": old}
    found = evaluate_topic(new, None, (), good)
    assert isinstance(found, Stalled) and "older Topic b" in found.message


def test_a_wrong_spec_owns_nothing_and_says_why() -> None:
    wrong = wish(config={"retention.ms": [1]})
    assert topic_owners([wrong]) == {}
    found = evaluate_topic(wrong, None, (), {})
    assert isinstance(found, Stalled) and "retention.ms" in found.message


def test_a_topic_is_ready_when_nothing_is_left_to_do() -> None:
    it = wish(partitions=3)
    assert it.topic
    seen = ObservedTopic("flights", 3, 1)
    assert evaluate_topic(it, seen, changes(it.topic, seen), {}) == Ready("topic flights has 3 partitions.")
    fewer = ObservedTopic("flights", 2, 1)
    assert isinstance(evaluate_topic(it, fewer, changes(it.topic, fewer), {}), Reconciling)
    more = ObservedTopic("flights", 4, 1)
    assert isinstance(evaluate_topic(it, more, changes(it.topic, more), {}), Stalled)
