"""The metrics that a client is asked to push."""

from uuid import UUID

import pytest

from ottla_broker.telemetry.subscription import find_client_subscription, order_as_java, subscription_id

INSTANCE = UUID(int=5)
CLIENT: dict[str, str | None] = {
    "client_id": "orders-7",
    "client_software_name": "librdkafka",
    "client_source_port": "4",
}


IDS_OF_KAFKA = {0: -725132322, 1: -1132247971, 3: -1441860073, 12: 1613849943, 13: -152952332, 40: 708979907}
"""Subscription ids by the number of metrics, computed by Java 17 with classes of Kafka 4.1."""


@pytest.mark.parametrize("count", IDS_OF_KAFKA)
def test_subscription_ids_are_kafkas(count: int) -> None:
    names = order_as_java(f"org.apache.kafka.metric.{it * 7919}.x" for it in range(count))
    instance = UUID(int=(0x0123456789ABCDEF << 64) + 0xFEDCBA9876543210 + count)
    assert subscription_id(names, 300_000, instance) == IDS_OF_KAFKA[count]


def test_a_client_gets_the_union_of_matching_subscriptions_with_the_shortest_interval() -> None:
    resources = [
        {"metrics": "a.,b.", "interval.ms": "60000"},
        {"metrics": "b.,c.", "interval.ms": "5000", "match": "client_id=orders-.*,client_software_name=librdkafka"},
        {"metrics": "d.", "interval.ms": "100", "match": "client_id=orders"},  # the whole id must match
        {"metrics": "*", "interval.ms": "100", "match": "client_software_version=2.*"},  # not known of this client
    ]
    found = find_client_subscription(resources, CLIENT, INSTANCE)
    assert sorted(found.metrics) == ["a.", "b.", "c."]
    assert found.interval_ms == 5000


def test_all_metrics_stand_for_every_other() -> None:
    found = find_client_subscription([{"metrics": "a."}, {"metrics": "*"}], CLIENT, INSTANCE)
    assert found.metrics == ("*",)


def test_without_a_subscription_a_client_pushes_nothing_and_asks_after_five_minutes() -> None:
    found = find_client_subscription([], CLIENT, INSTANCE)
    assert (found.metrics, found.interval_ms) == ((), 300_000)
