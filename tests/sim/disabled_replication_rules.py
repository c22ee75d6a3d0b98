"""Rules of replication (docs/rules.md), each disabled on purpose: the checks must detect it.

`RULES` has the patches by name. They exist only here.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from ottla_broker.broker import Broker
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.metadata import broker_plans, election, isr_changes, replication_control
from ottla_broker.metadata.records import PartitionRecord
from ottla_broker.replication import replica_fetchers
from ottla_broker.replication.cluster_view import MetadataClusterView
from ottla_broker.replication.isr_state import IsrState
from ottla_broker.replication.partition import Partition
from ottla_broker.replication.partition_leader import PartitionLeader
from ottla_broker.replication.replica_fetchers import ReplicaFetchers
from tests.sim.disabled_rules import coordinators_load_without_waiting


@contextmanager
def acks_before_high_watermark() -> Iterator[None]:
    """acks=all is acknowledged when the leader has the records (rule 3)."""
    with patch.object(Partition, "is_committed", lambda *_: True):
        yield


@contextmanager
def high_watermark_ignores_pending_isr() -> Iterator[None]:
    """Members of a proposed ISR do not count before the metadata have it (rule 3)."""

    with (
        patch.object(IsrState, "maximal_isr", lambda _, isr: isr),
        # Without this patch the effect would be hidden.
        patch.object(PartitionLeader, "_limit_to_joining_followers", lambda _, watermark: watermark),
    ):
        yield


@contextmanager
def min_insync_replicas_ignored() -> Iterator[None]:
    """min.insync.replicas is not checked (rule 3)."""
    with patch.object(PartitionLeader, "effective_min_isr", property(lambda partition: 1)):
        yield


@contextmanager
def truncation_by_high_watermark() -> Iterator[None]:
    """A new follower truncates to its own high watermark (rule 2)."""
    original = Partition._become_follower

    def become_follower(partition: Partition) -> None:
        partition.log.truncate_to(max(partition.log.high_watermark, partition.log.start))
        original(partition)

    with patch.object(Partition, "_become_follower", become_follower):
        yield


@contextmanager
def followers_keep_diverged_records() -> Iterator[None]:
    """Followers do not send their last epoch, so the leader cannot detect divergence (rule 2)."""

    with patch.object(replica_fetchers, "last_record_epoch", lambda _: -1):
        yield


@contextmanager
def leader_epoch_not_increased() -> Iterator[None]:
    """The leader epoch is not increased when the leader changes (rule 1)."""
    original = election.with_next_epochs

    def with_next_epochs(old: PartitionRecord, new: PartitionRecord) -> PartitionRecord | None:
        made = original(old, new)
        return None if made is None else msgspec.structs.replace(made, leader_epoch=old.leader_epoch)

    with patch.object(election, "with_next_epochs", with_next_epochs):
        yield


@contextmanager
def isr_changes_of_former_leaders_accepted() -> Iterator[None]:
    """An ISR proposal of a former leader is accepted (rule 1)."""
    original = isr_changes.apply_isr_change

    def apply_isr_change(
        old: PartitionRecord, proposal: isr_changes.IsrChangeRequest, _: int, *others: Any
    ) -> PartitionRecord:
        return original(old, proposal, old.leader, *others)

    with (
        patch.object(isr_changes, "check_epochs", lambda *_: None),
        patch.object(replication_control, "apply_isr_change", apply_isr_change),
    ):
        yield


@contextmanager
def broker_epochs_not_checked() -> Iterator[None]:
    """Broker epochs are not compared, so a wiped disk passes as its former self (rule 4)."""
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
    """Any replica may be elected (rule 5)."""
    original = election.elect_leader

    def elect_leader(old: Any, isr: Any, trusted: Any, candidates: Any, rules: election.TopicElectionRules) -> Any:
        return original(old, isr, trusted, candidates, replace(rules, allow_unclean=True))

    with patch.object(election, "elect_leader", elect_leader):
        yield


@contextmanager
def unclean_shutdown_ignored() -> Iterator[None]:
    """A broker that lost power stays in its ISRs (rule 5)."""
    with patch.object(election, "state_after_unclean_shutdown", lambda *_: None):
        yield


@contextmanager
def followers_acknowledge_before_sync() -> Iterator[None]:
    """With flush.messages=1 a follower fetches more before its records are on the device
    (rule 17).
    """
    original = ReplicaFetchers._connection_key

    def connection_key(fetchers: ReplicaFetchers, partition: Partition) -> tuple[int, bool] | None:
        key = original(fetchers, partition)
        return None if key is None else (key[0], False)

    with patch.object(ReplicaFetchers, "_connection_key", connection_key):
        yield


@contextmanager
def producer_state_lost_on_failover() -> Iterator[None]:
    """Sequence numbers do not survive a failover (rule 8)."""
    original = Partition._become_leader

    def become_leader(partition: Partition) -> PartitionLeader:
        partition.log.producers = ProducerStates()
        return original(partition)

    with patch.object(Partition, "_become_leader", become_leader):
        yield


@contextmanager
def coordinators_serve_out_of_session() -> Iterator[None]:
    """A coordinator that cannot reach the controller continues to return committed offsets (rule
    6).
    """
    with patch.object(Broker, "_is_in_session", lambda _: True):
        yield


@contextmanager
def new_leaders_return_old_high_watermarks() -> Iterator[None]:
    """A new leader returns its high watermark before it knows its predecessor's."""
    with patch.object(Partition, "has_reached_epoch_start", property(lambda partition: True)):
        yield


RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        acks_before_high_watermark,
        high_watermark_ignores_pending_isr,
        min_insync_replicas_ignored,
        truncation_by_high_watermark,
        followers_keep_diverged_records,
        leader_epoch_not_increased,
        isr_changes_of_former_leaders_accepted,
        broker_epochs_not_checked,
        unclean_elections,
        unclean_shutdown_ignored,
        followers_acknowledge_before_sync,
        producer_state_lost_on_failover,
        coordinators_load_without_waiting,
        coordinators_serve_out_of_session,
        new_leaders_return_old_high_watermarks,
    )
}
