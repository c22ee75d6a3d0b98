"""Which replica a consumer should read from, by its rack (KIP-392): pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.replication.followers import Follower

RACK_AWARE: Final = "RackAwareReplicaSelector"  # the last part of Kafka's name of the class


def chooses_by_rack(selector: str | None) -> bool:
    """What `replica.selector.class` wants."""
    return selector is not None and selector.rpartition(".")[2] == RACK_AWARE


def nearer_replica(
    rack: str,
    offset: int,
    leader: int,
    isr: Iterable[int],
    followers: Iterable[Follower],
    brokers: Mapping[int, BrokerRegistration],
) -> int | None:
    """A follower in the consumer's rack that is in sync and has `offset`, the one with the longest log; None when the leader is as near, or
    nobody is."""
    if (here := brokers.get(leader)) is not None and here.rack == rack:
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
