"""Rules of share groups (docs/share-groups.md), each disabled on purpose: the checks must detect
it.

`RULES` has the patches by name. They exist only here.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from ottla_broker.coordination.journal import Write
from ottla_broker.share_groups import share_state_shard
from ottla_broker.share_groups.dead_letters import DeadLetters
from ottla_broker.share_groups.in_flight_ranges import InFlightRange
from ottla_broker.share_groups.share_partition import SharePartition, StateWrite
from ottla_broker.share_groups.share_partition_leader import DeliveredRecords, ShareFetchLimits, SharePartitionLeader
from ottla_broker.share_groups.share_state import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    StateBatch,
    StateUpdate,
)
from ottla_broker.share_groups.share_state_client import ShareStateClient
from ottla_broker.share_groups.share_state_shard import ShareStateShard
from ottla_broker.wire.errors import KafkaError

ARCHIVING = int(DeliveryState.archiving)
NO_LIMIT = 1 << 31


@contextmanager
def acknowledgements_not_stored() -> Iterator[None]:
    """A leader answers acknowledgements without having them stored."""

    async def store_write(
        leader: SharePartitionLeader, records: SharePartition, write: StateWrite, done: "asyncio.Future[None]"
    ) -> None:
        records.commit(write.id)
        done.set_result(None)
        leader._schedule_expiry()
        leader.waiters.notify_all()

    with patch.object(SharePartitionLeader, "_store_write", store_write):
        yield


@contextmanager
def acknowledgements_answered_before_replication() -> Iterator[None]:
    """The share coordinator answers when its own log has the record."""

    async def wait_for_nothing(_: Write) -> None:
        return None

    with patch.object(share_state_shard, "wait_for_write", wait_for_nothing):
        yield


@contextmanager
def delivery_counts_not_stored() -> Iterator[None]:
    """The state of a record is stored without its delivery count."""
    original = ShareStateClient.write

    async def write(client: ShareStateClient, key: SharePartitionKey, update: StateUpdate) -> None:
        batches = tuple(one._replace(delivery_count=0) for one in update.batches)
        await original(client, key, update._replace(batches=batches))

    with patch.object(ShareStateClient, "write", write):
        yield


@contextmanager
def acknowledgements_of_any_member_accepted() -> Iterator[None]:
    """A record that one member has acquired can be acknowledged by another, for example by one
    whose lock has expired.
    """
    with patch.object(InFlightRange, "is_acquired_by", lambda one, _: one.state is DeliveryState.acquired):
        yield


@contextmanager
def acquired_records_lost_on_takeover() -> Iterator[None]:
    """A leader that takes over continues after the last record that its predecessor delivered."""
    original = ShareStateClient.write

    async def write(client: ShareStateClient, key: SharePartitionKey, update: StateUpdate) -> None:
        end = max((one.last_offset + 1 for one in update.batches), default=update.start_offset)
        await original(client, key, update._replace(start_offset=max(end, update.start_offset)))

    with patch.object(ShareStateClient, "write", write):
        yield


@contextmanager
def released_records_archived() -> Iterator[None]:
    """A leader that takes over delivers nothing again that its predecessor has delivered, not even
    released records."""
    original = ShareStateClient.read

    async def read(client: ShareStateClient, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        state = await original(client, key, leader_epoch)
        return replace(state, batches=tuple(_archived(one) for one in state.batches))

    with patch.object(ShareStateClient, "read", read):
        yield


@contextmanager
def dead_letters_forgotten_on_takeover() -> Iterator[None]:
    """A leader that takes over does not write the dead letters that its predecessor had to
    write."""
    original = ShareStateClient.read

    async def read(client: ShareStateClient, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        state = await original(client, key, leader_epoch)
        batches = tuple(_archived(one) if one.delivery_state == ARCHIVING else one for one in state.batches)
        return replace(state, batches=batches)

    with patch.object(ShareStateClient, "read", read):
        yield


@contextmanager
def records_archived_before_their_dead_letters() -> Iterator[None]:
    """A record is stored as archived, and then its dead letter is written."""

    async def write_dead_letters(leader: SharePartitionLeader, records: SharePartition, letters: DeadLetters) -> None:
        with suppress(KafkaError):
            await leader._store(records, records.archive_dead_letters(letters))
        await leader._dead_letters.write(leader.key.group_id, leader.partition, letters)

    with patch.object(SharePartitionLeader, "_write_dead_letters", write_dead_letters):
        yield


def _archived(one: StateBatch) -> StateBatch:
    return one._replace(delivery_state=int(DeliveryState.archived))


@contextmanager
def updates_forgotten_on_takeover() -> Iterator[None]:
    """A share coordinator that takes over loads snapshots only."""
    original = ShareStateShard._apply_record

    def apply_record(shard: ShareStateShard, header: Any, key: bytes | None, value: bytes | None) -> None:
        before = dict(shard._entries)
        states = {one: entry.state for one, entry in before.items()}
        original(shard, header, key, value)
        for one, entry in shard._entries.items():
            if before.get(one) is entry:
                entry.state = replace(states[one], leader_epoch=entry.state.leader_epoch)

    with patch.object(ShareStateShard, "_apply_record", apply_record):
        yield


@contextmanager
def records_delivered_without_a_session() -> Iterator[None]:
    """A leader delivers records also when its session with the controller has ended and another
    broker may lead.
    """
    original = SharePartitionLeader.deliver

    def deliver(leader: SharePartitionLeader, member_id: str, limits: ShareFetchLimits) -> DeliveredRecords | None:
        leader._is_in_session = lambda: True
        return original(leader, member_id, limits)

    with patch.object(SharePartitionLeader, "deliver", deliver):
        yield


@contextmanager
def delivery_limit_ignored() -> Iterator[None]:
    """A record is available again however often it was delivered."""
    original = SharePartition._begin_write

    def begin_write(records: SharePartition, changes: Sequence[Any]) -> StateWrite | None:
        with patch.object(records, "max_deliveries", NO_LIMIT):
            return original(records, changes)

    with patch.object(SharePartition, "_begin_write", begin_write):
        yield


RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        acknowledgements_not_stored,
        acknowledgements_answered_before_replication,
        delivery_counts_not_stored,
        acknowledgements_of_any_member_accepted,
        acquired_records_lost_on_takeover,
        released_records_archived,
        updates_forgotten_on_takeover,
        records_delivered_without_a_session,
        dead_letters_forgotten_on_takeover,
        records_archived_before_their_dead_letters,
        delivery_limit_ignored,
    )
}
OF_DEAD_LETTERS = (dead_letters_forgotten_on_takeover, records_archived_before_their_dead_letters)
"""Rules that concern share groups with a topic of dead letters."""
