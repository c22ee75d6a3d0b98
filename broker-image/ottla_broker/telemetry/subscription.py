"""Computes the metrics that a client pushes, and the interval (KIP-714). Pure.

A client-metrics resource is a subscription to metrics of the clients that it selects. A client
pushes the metrics of all resources that select it, at the shortest of their intervals and of the
default interval. It pushes no metrics if none selects it.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

import msgspec

from ottla_broker.config import CLIENT_METRICS_INTERVAL_MS, CLIENT_METRICS_MATCH, CLIENT_METRICS_METRICS
from ottla_broker.config.client_match import matches_client
from ottla_broker.wire.crc import crc32c

ALL_METRICS: Final = "*"
_SMALLEST_TABLE: Final = 16
_LOAD_FACTOR: Final = 0.75


class ClientSubscription(msgspec.Struct, frozen=True):
    """`id`: changes with `metrics` and `interval_ms`, so that a push for an outdated subscription
    is recognized. `metrics`: prefixes of names, or ALL_METRICS.
    """

    id: int
    metrics: tuple[str, ...]
    interval_ms: int


def find_client_subscription(
    resources: Iterable[Mapping[str, str]], client: Mapping[str, str | None], instance_id: UUID
) -> ClientSubscription:
    """The metrics and the interval of one client. `resources`: the configs of all client-metrics
    resources. `client`: the client's value of each match parameter."""
    metrics: dict[str, None] = {}
    interval_ms = CLIENT_METRICS_INTERVAL_MS.default
    for configs in resources:
        if matches_client(CLIENT_METRICS_MATCH.parse(configs.get(CLIENT_METRICS_MATCH.name, "")), client):
            metrics |= dict.fromkeys(CLIENT_METRICS_METRICS.parse(configs.get(CLIENT_METRICS_METRICS.name, "")))
            if (own := configs.get(CLIENT_METRICS_INTERVAL_MS.name)) is not None:
                interval_ms = min(interval_ms, CLIENT_METRICS_INTERVAL_MS.parse(own))
    names = (ALL_METRICS,) if ALL_METRICS in metrics else order_as_java(metrics)
    return ClientSubscription(subscription_id(names, interval_ms, instance_id), names, interval_ms)


def subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: UUID) -> int:
    """Kafka's subscription id: the CRC-32C of the metrics, as Java prints a set, and the interval;
    XORed with the hash of the client instance id.
    """
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    halves = (instance_id.int >> 64) ^ (instance_id.int & 0xFFFF_FFFF_FFFF_FFFF)
    unsigned = checksum ^ (halves >> 32) ^ (halves & 0xFFFF_FFFF)
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


def order_as_java(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts in the iteration order of a Java HashSet with these elements: by bucket of a table
    that doubles while it is more than three quarters full.
    """
    added = list(dict.fromkeys(texts))
    buckets = _SMALLEST_TABLE
    while len(added) > buckets * _LOAD_FACTOR:
        buckets *= 2
    return tuple(sorted(added, key=lambda text: _spread_hash(text) & (buckets - 1)))


def _spread_hash(text: str) -> int:
    """Java's hash code of the text, with its upper half mixed into the lower as by HashMap."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value ^ (value >> 16)
