"""Patterns of the topics that a mirror copies."""

import pytest

from ottla_broker.mirroring.mirror_config import matches_topic


@pytest.mark.parametrize(
    ("patterns", "matching", "others"),
    [
        (("*",), ("a", "a.b", "_schemas"), ("__consumer_offsets", "__other")),
        (("flights.*",), ("flights.", "flights.jfk"), ("flights", "xflights.jfk", "flights_jfk")),
        (("*-eu", "!secret-*"), ("orders-eu",), ("secret-eu", "orders-us")),
        (("!b", "*"), ("a",), ("b",)),
        (("__other", "a+b"), ("__other", "a+b"), ("aab", "__others")),
        (("__consumer_offsets", "__cluster_metadata"), (), ("__consumer_offsets", "__cluster_metadata")),
        ((), (), ("a",)),
    ],
)
def test_patterns_match_topics(patterns: tuple[str, ...], matching: tuple[str, ...], others: tuple[str, ...]) -> None:
    assert all(matches_topic(name, patterns) for name in matching)
    assert not any(matches_topic(name, patterns) for name in others)
