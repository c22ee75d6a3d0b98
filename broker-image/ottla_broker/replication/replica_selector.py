"""Kafka's RackAwareReplicaSelector: the replica that a consumer should read from, by its rack
(KIP-392). Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.replication.followers import Follower

RACK_AWARE: Final = "RackAwareReplicaSelector"  # the last part of the class's name in Kafka


def is_rack_aware(selector: str | None) -> bool:
    """`selector`: replica.selector.class."""
    return selector is not None and selector.rpartition(".")[2] == RACK_AWARE


def select_replica(
    rack: str,
    offset: int,
    leader: int,
    isr: Iterable[int],
    followers: Iterable[Follower],
    brokers: Mapping[int, BrokerRegistration],
) -> int | None:
    """The in-sync follower in the consumer's rack that has `offset`, of several the one with the
    longest log. None when the leader is in that rack, or there is no such follower."""
    if (registered := brokers.get(leader)) is not None and registered.rack == rack:
        return None
    in_sync = set(isr)
    near = [
        follower
        for follower in followers
        if follower.broker in in_sync
        and follower.log_start <= offset <= follower.log_end
        and (broker := brokers.get(follower.broker)) is not None
        and broker.rack == rack
        and not broker.fenced
    ]
    return max(near, key=lambda one: (one.log_end, -one.broker)).broker if near else None
