from uuid import UUID

import pytest

from ottla_broker.metadata.register import Voter
from ottla_broker.metadata.register.steps import (
    initial_value,
    with_new_leader,
    with_renewed_lease,
    with_vacant_lead,
    with_voters,
)
from ottla_broker.wire.errors import KafkaError

ME = Voter(1, UUID(int=1), "here:9092")
YOU = Voter(2, UUID(int=2), "there:9092")


def test_a_wiped_disk_may_not_lead() -> None:
    value = initial_value("c", ME, 0, lease_ms=1000)
    with pytest.raises(KafkaError, match="may lack committed metadata"):
        with_new_leader(value, Voter(1, UUID(int=2)), 0, lease_ms=1000)


def test_a_take_over_raises_the_epoch_and_tells_where_the_leader_is_now() -> None:
    value = with_voters(initial_value("c", ME, 0, lease_ms=1000), (ME, YOU), 1)
    moved = Voter(2, YOU.directory, "elsewhere:1")
    taken = with_new_leader(with_vacant_lead(value, 2), moved, 3, lease_ms=2000)
    assert (taken.epoch, taken.leader, taken.holder, taken.isr) == (2, 2, 2, (ME, moved))
    assert taken.lease_ms == 2000


def test_who_resigns_stays_leader_until_another_is() -> None:
    value = initial_value("c", ME, 0, lease_ms=1000)
    assert with_vacant_lead(value, 1).leader == 1
    assert with_vacant_lead(value, 1).holder == -1
    assert with_renewed_lease(with_vacant_lead(value, 1), 2).holder == 1
