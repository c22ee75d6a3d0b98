"""Rules that hold a cluster together, each switched off on purpose: what the checks of several brokers are worth is whether they notice.

`BROKEN` gives, by name, what to patch for a run. The patches exist only here.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

from ottla_broker.broker import Broker
from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.metadata import broker_plans, election, isr_changes, replication_control
from ottla_broker.metadata.leader_state import LeaderState
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_rules import EpochAndOffset
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication import replica_fetchers
from ottla_broker.replication.cluster_view import MetadataClusterView
from ottla_broker.replication.isr_state import IsrState
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partition_leader import PartitionLeader
from ottla_broker.replication.replica_fetchers import ReplicaFetchers
from tests.sim.broken_rules import coordinators_load_what_they_know_to_be_committed


@contextmanager
def acks_before_the_high_watermark() -> Iterator[None]:
    """acks=all is answered when the leader has it (rule 3)."""
    with patch.object(Partition, "is_committed", lambda *_: True):
        yield


@contextmanager
def high_watermark_over_the_committed_isr() -> Iterator[None]:
    """Who is about to join the ISR does not count before the metadata say so (rule 3)."""

    def not_held(_: PartitionLeader, watermark: int) -> int:
        return watermark

    with (
        patch.object(IsrState, "maximal_isr", lambda _, isr: isr),
        patch.object(PartitionLeader, "_limit_to_joining_followers", not_held),  # which would hide it
    ):
        yield


@contextmanager
def acks_by_an_isr_that_is_too_small() -> Iterator[None]:
    """min.insync.replicas is not looked at (rule 3)."""
    with patch.object(PartitionLeader, "effective_min_isr", property(lambda partition: 1)):
        yield


@contextmanager
def truncation_by_high_watermark() -> Iterator[None]:
    """Who begins to follow cuts off what it does not know to be committed (rule 2)."""
    properly = Partition._become_follower

    def begin_to_follow(partition: Partition) -> None:
        partition.log.truncate_to(max(partition.log.high_watermark, partition.log.start))
        properly(partition)

    with patch.object(Partition, "_become_follower", begin_to_follow):
        yield


@contextmanager
def followers_keep_what_their_leader_never_had() -> Iterator[None]:
    """They do not say what their last record is, so that nobody can tell them where the logs part (rule 2)."""

    with patch.object(replica_fetchers, "last_record_epoch", lambda _: -1):
        yield


@contextmanager
def new_leaders_in_old_epochs() -> Iterator[None]:
    """A leader epoch stays what it is when somebody else leads (rule 1)."""
    properly = election.with_next_epochs

    def next_state(old: PartitionRecord, new: PartitionRecord) -> PartitionRecord | None:
        made = properly(old, new)
        return None if made is None else msgspec.structs.replace(made, leader_epoch=old.leader_epoch)

    with patch.object(election, "with_next_epochs", next_state):
        yield


@contextmanager
def isrs_of_leaders_that_were() -> Iterator[None]:
    """An ISR is taken from whoever led once, whatever has happened since it was proposed (rule 1)."""
    properly = isr_changes.apply_isr_change

    def proposed(old: PartitionRecord, proposal: isr_changes.IsrChangeRequest, _: int, *others: Any) -> PartitionRecord:
        return properly(old, proposal, old.leader, *others)

    with (
        patch.object(isr_changes, "check_epochs", lambda *_: None),
        patch.object(replication_control, "apply_isr_change", proposed),
    ):
        yield


@contextmanager
def any_life_of_a_broker_may_join() -> Iterator[None]:
    """Broker epochs are not compared: a wiped disk passes as its old self (rule 4)."""
    with (
        patch.object(MetadataClusterView, "is_registered", lambda *_: True),
        patch.object(MetadataClusterView, "may_join", lambda *_: True),
        patch.object(isr_changes, "check_isr_member", lambda *_, **__: None),
        patch.object(broker_plans, "_is_replica_lost", lambda *_: False),
        patch.object(election, "state_after_unclean_shutdown", lambda *_: None),
    ):
        yield


@contextmanager
def unclean_elections() -> Iterator[None]:
    """Anybody may lead (rule 5)."""
    properly = election.elect_leader

    def elected(old: Any, isr: Any, trusted: Any, voters: Any, rules: election.TopicElectionRules) -> Any:
        return properly(old, isr, trusted, voters, replace(rules, allow_unclean=True))

    with patch.object(election, "elect_leader", elected):
        yield


@contextmanager
def who_lost_power_is_trusted() -> Iterator[None]:
    """A broker whose machine was off stays where it was in ISRs (rule 5)."""
    with patch.object(election, "state_after_unclean_shutdown", lambda *_: None):
        yield


@contextmanager
def the_lead_is_taken_without_hearing_others() -> Iterator[None]:
    """Who wins the register leads the metadata with the log that it has (decision 6)."""

    async def hear_enough(_: LeaderState) -> None:
        return None

    with patch.object(LeaderState, "wait_for_election_quorum", hear_enough):
        yield


@contextmanager
def metadata_count_before_they_are_synced() -> Iterator[None]:
    """A broker says that it has metadata which are in its page cache (decision 6)."""

    async def durable(log: MetadataLog) -> EpochAndOffset:
        return log.log_end

    async def synced(log: PartitionLog, _: int) -> None:
        log.flush.flushed = log.end

    properly = PartitionLog.wait_until_synced

    async def some_synced(log: PartitionLog, end: int) -> None:
        await (synced if log.topic == "__cluster_metadata" else properly)(log, end)

    with (
        patch.object(MetadataLog, "wait_until_durable", durable),
        patch.object(PartitionLog, "wait_until_synced", some_synced),
    ):
        yield


@contextmanager
def followers_count_before_they_have_synced() -> Iterator[None]:
    """With flush.messages=1 a follower asks on before what it has is on its device (rule 17)."""
    properly = ReplicaFetchers._connection_key

    def place_of(fetchers: ReplicaFetchers, partition: Partition) -> tuple[int, bool] | None:
        place = properly(fetchers, partition)
        return None if place is None else (place[0], False)

    with patch.object(ReplicaFetchers, "_connection_key", place_of):
        yield


@contextmanager
def duplicates_are_forgotten_by_new_leaders() -> Iterator[None]:
    """Sequences do not survive a failover (rule 8)."""
    properly = Partition._become_leader

    def begin_to_lead(partition: Partition) -> PartitionLeader:
        partition.log.producers = ProducerStates()
        return properly(partition)

    with patch.object(Partition, "_become_leader", begin_to_lead):
        yield


@contextmanager
def coordinators_answer_out_of_session() -> Iterator[None]:
    """Who cannot reach the controller goes on telling what groups have committed (rule 6)."""
    with patch.object(Broker, "_is_in_session", lambda _: True):
        yield


@contextmanager
def new_leaders_tell_old_high_watermarks() -> Iterator[None]:
    """A leader tells what it knows, before it knows what its predecessor told."""
    with patch.object(Partition, "has_reached_epoch_start", property(lambda partition: True)):
        yield


BROKEN: dict[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        acks_before_the_high_watermark,
        high_watermark_over_the_committed_isr,
        acks_by_an_isr_that_is_too_small,
        truncation_by_high_watermark,
        followers_keep_what_their_leader_never_had,
        new_leaders_in_old_epochs,
        isrs_of_leaders_that_were,
        any_life_of_a_broker_may_join,
        unclean_elections,
        who_lost_power_is_trusted,
        the_lead_is_taken_without_hearing_others,
        metadata_count_before_they_are_synced,
        followers_count_before_they_have_synced,
        duplicates_are_forgotten_by_new_leaders,
        coordinators_load_what_they_know_to_be_committed,
        coordinators_answer_out_of_session,
        new_leaders_tell_old_high_watermarks,
    )
}
