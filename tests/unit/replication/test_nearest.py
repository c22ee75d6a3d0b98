"""Which replica a consumer is sent to (KIP-392)."""

from uuid import UUID

import pytest

from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.replication.followers import Follower
from ottla_broker.replication.replica_selector import is_rack_aware, select_replica


def broker(node: int, rack: str | None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(node, 1, UUID(int=node), {}, rack, (), fenced=fenced)


def choose(rack: str, offset: int, isr: tuple[int, ...] = (1, 2, 3), *, fenced: bool = False) -> int | None:
    brokers = {1: broker(1, "a"), 2: broker(2, "b"), 3: broker(3, "b", fenced=fenced)}
    followers = [Follower(2, log_end=10, log_start=5), Follower(3, log_end=20, log_start=0)]
    return select_replica(rack, offset, 1, isr, followers, brokers)


@pytest.mark.parametrize(
    ("rack", "offset", "isr", "fenced", "chosen"),
    [
        ("b", 7, (1, 2, 3), False, 3),  # the longest log of those in the rack
        ("b", 7, (1, 2), False, 2),
        ("b", 7, (1, 2, 3), True, 2),
        ("b", 15, (1, 2), False, None),  # it has not come so far
        ("b", 3, (1, 2), False, None),  # nor kept it
        ("a", 7, (1, 2, 3), False, None),  # the leader is there
        ("c", 7, (1, 2, 3), False, None),
    ],
)
def test_the_nearest_replica_that_is_in_sync_and_has_it(
    rack: str, offset: int, isr: tuple[int, ...], fenced: bool, chosen: int | None
) -> None:
    assert choose(rack, offset, isr, fenced=fenced) == chosen


@pytest.mark.parametrize(
    ("selector", "by_rack"),
    [
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector", True),
        ("RackAwareReplicaSelector", True),
        ("org.apache.kafka.common.replica.LeaderSelector", False),
        (None, False),
    ],
)
def test_what_is_rack_aware(selector: str | None, by_rack: bool) -> None:
    assert is_rack_aware(selector) is by_rack
