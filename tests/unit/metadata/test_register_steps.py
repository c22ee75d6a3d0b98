from uuid import UUID

import pytest

from ottla_broker.metadata.quorum_rules import Voter
from ottla_broker.metadata.register import initial_value
from ottla_broker.wire.errors import KafkaError

ME = Voter(1, UUID(int=1), "here:9092")
YOU = Voter(2, UUID(int=2), "there:9092")


def test_a_wiped_disk_may_not_lead() -> None:
    value = initial_value("c", ME, 0, lease_ms=1000)
    with pytest.raises(KafkaError, match="may lack committed metadata"):
        value.with_new_leader(Voter(1, UUID(int=2)), 0, lease_ms=1000)


def test_a_take_over_raises_the_epoch_and_tells_where_the_leader_is_now() -> None:
    value = initial_value("c", ME, 0, lease_ms=1000).with_voters((ME, YOU), 1)
    moved = Voter(2, YOU.directory, "elsewhere:1")
    taken = value.with_vacant_lead(2).with_new_leader(moved, 3, lease_ms=2000)
    assert (taken.epoch, taken.leader, taken.holder, taken.isr) == (2, 2, 2, (ME, moved))
    assert taken.lease_ms == 2000


def test_who_resigns_stays_leader_until_another_is() -> None:
    value = initial_value("c", ME, 0, lease_ms=1000)
    assert value.with_vacant_lead(1).leader == 1
    assert value.with_vacant_lead(1).holder == -1
    assert value.with_vacant_lead(1).with_renewed_lease(2).holder == 1
