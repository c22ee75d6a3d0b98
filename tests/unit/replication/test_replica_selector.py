"""The preferred read replica of a consumer (KIP-392)."""

from uuid import UUID

import pytest

from ottla_broker.metadata.image import BrokerRegistration
from ottla_broker.replication.followers import Follower
from ottla_broker.replication.replica_selector import is_rack_aware, select_replica


def broker(node: int, rack: str | None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(node, 1, UUID(int=node), {}, rack, (), fenced=fenced)


def select(rack: str, offset: int, isr: tuple[int, ...] = (1, 2, 3), *, fenced: bool = False) -> int | None:
    brokers = {1: broker(1, "a"), 2: broker(2, "b"), 3: broker(3, "b", fenced=fenced)}
    followers = [Follower(2, log_end=10, log_start=5), Follower(3, log_end=20, log_start=0)]
    return select_replica(rack, offset, 1, isr, followers, brokers)


@pytest.mark.parametrize(
    ("rack", "offset", "isr", "fenced", "expected"),
    [
        ("b", 7, (1, 2, 3), False, 3),  # the longest log in the rack
        ("b", 7, (1, 2), False, 2),
        ("b", 7, (1, 2, 3), True, 2),
        ("b", 15, (1, 2), False, None),  # above its log end
        ("b", 3, (1, 2), False, None),  # below its log start
        ("a", 7, (1, 2, 3), False, None),  # the leader is in this rack
        ("c", 7, (1, 2, 3), False, None),
    ],
)
def test_replica_in_the_rack_that_is_in_sync_and_has_the_offset_is_selected(
    rack: str, offset: int, isr: tuple[int, ...], fenced: bool, expected: int | None
) -> None:
    assert select(rack, offset, isr, fenced=fenced) == expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("org.apache.kafka.common.replica.RackAwareReplicaSelector", True),
        ("RackAwareReplicaSelector", True),
        ("org.apache.kafka.common.replica.LeaderSelector", False),
        (None, False),
    ],
)
def test_only_the_rack_aware_selector_is_rack_aware(selector: str | None, expected: bool) -> None:
    assert is_rack_aware(selector) is expected
