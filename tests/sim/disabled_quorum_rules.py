"""Rules of the metadata quorum, each disabled on purpose: the checks must detect it.

`RULES` has the patches by name. They exist only here.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from ottla_broker.log.partition_log import PartitionLog
from ottla_broker.metadata import leader_state, raft_rules, voter_set
from ottla_broker.metadata.leader_term import LeaderTerm
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.quorum_peers import QuorumPeers
from ottla_broker.metadata.quorum_state import QuorumStateFile
from ottla_broker.metadata.raft_rules import (
    ElectionState,
    EpochAndOffset,
    RaftState,
    Replica,
    VoteRequest,
)
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.metadata.voter_set import ReplicaKey


@contextmanager
def several_votes_in_an_epoch() -> Iterator[None]:
    """A replica votes for every candidate of its epoch."""
    original = raft_rules.answer_vote

    def answer_vote(state: RaftState, request: VoteRequest, me: Replica) -> tuple[RaftState, bool]:
        forgets = request.epoch == state.epoch and state.role is raft_rules.Role.UNATTACHED
        return original(replace(state, voted=None, leader=NO_LEADER) if forgets else state, request, me)

    with patch.object(raft_rules, "answer_vote", answer_vote):
        yield


@contextmanager
def votes_for_shorter_logs() -> Iterator[None]:
    """A replica votes for a candidate whose log is shorter than its own."""
    original = raft_rules.answer_vote

    def answer_vote(state: RaftState, request: VoteRequest, me: Replica) -> tuple[RaftState, bool]:
        return original(state, request, replace(me, log_end=EpochAndOffset(-1, 0)))

    with patch.object(raft_rules, "answer_vote", answer_vote):
        yield


@contextmanager
def pre_votes_always_granted() -> Iterator[None]:
    """A pre-vote is granted even while the replica hears the leader."""
    original = raft_rules.answer_vote

    def answer_vote(state: RaftState, request: VoteRequest, me: Replica) -> tuple[RaftState, bool]:
        return (state, True) if request.is_pre_vote else original(state, request, me)

    with patch.object(raft_rules, "answer_vote", answer_vote):
        yield


@contextmanager
def votes_answered_before_sync() -> Iterator[None]:
    """A vote is answered while it is only in memory; it is written a second later."""
    original = QuorumStateFile.store

    async def store(file: QuorumStateFile, state: ElectionState) -> None:
        async def store_later() -> None:
            await asyncio.sleep(1)
            await original(file, state)

        file.stored = state
        file.late = asyncio.get_running_loop().create_task(store_later())  # type: ignore[attr-defined]

    with patch.object(QuorumStateFile, "store", store):
        yield


@contextmanager
def epochs_used_again_after_restart() -> Iterator[None]:
    """A broker restarts in the epoch before the newest that it knows, without its vote."""
    original = raft_rules.restart

    def restart(stored: ElectionState, me: ReplicaKey) -> RaftState:
        return original(ElectionState(max(stored.epoch - 1, 0)), me)

    with patch.object(raft_rules, "restart", restart):
        yield


@contextmanager
def leaders_without_check_quorum() -> Iterator[None]:
    """A leader without a majority does not resign."""

    async def check_quorum(_: LeaderTerm) -> None:
        await asyncio.get_running_loop().create_future()

    with patch.object(LeaderTerm, "_check_quorum", check_quorum):
        yield


@contextmanager
def metadata_committed_by_one() -> Iterator[None]:
    """One of three voters is enough to commit."""
    original = voter_set.next_high_watermark

    def next_high_watermark(acknowledged: Any, voters: Any, **offsets: int) -> int:
        fewer = sorted(voters, key=lambda voter: acknowledged.get(voter, 0))[2:]
        return original(acknowledged, fewer or voters, **offsets)

    with patch.object(leader_state, "next_high_watermark", next_high_watermark):
        yield


@contextmanager
def founding_without_asking() -> Iterator[None]:
    """A broker that may found a cluster does so without asking the others whether they have one."""

    async def find_cluster(_: QuorumPeers) -> str | None:
        return None

    with patch.object(QuorumPeers, "find_cluster", find_cluster):
        yield


@contextmanager
def voters_do_not_report_addresses() -> Iterator[None]:
    """A voter whose address has changed sends no UpdateRaftVoter."""

    async def update_own_entry(*_: Any) -> None:
        return None

    with patch.object(QuorumPeers, "update_own_entry", update_own_entry):
        yield


@contextmanager
def metadata_acknowledged_before_sync() -> Iterator[None]:
    """A broker acknowledges metadata records that are only in its page cache."""

    async def durable(log: MetadataLog) -> EpochAndOffset:
        return log.log_end

    async def synced(log: PartitionLog, _: int) -> None:
        log.flush.flushed_offset = log.end

    original = PartitionLog.wait_until_synced

    async def some_synced(log: PartitionLog, end: int) -> None:
        await (synced if log.topic == "__cluster_metadata" else original)(log, end)

    with (
        patch.object(MetadataLog, "wait_until_durable", durable),
        patch.object(PartitionLog, "wait_until_synced", some_synced),
    ):
        yield


RULES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (
        several_votes_in_an_epoch,
        votes_for_shorter_logs,
        pre_votes_always_granted,
        votes_answered_before_sync,
        epochs_used_again_after_restart,
        leaders_without_check_quorum,
        metadata_committed_by_one,
        founding_without_asking,
        voters_do_not_report_addresses,
        metadata_acknowledged_before_sync,
    )
}
