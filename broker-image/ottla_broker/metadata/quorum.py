"""The interface of the metadata quorum for the rest of the broker: commits, fetches, the current
leader.

Only the implementation (`raft_quorum`) knows how the leader is elected, so that it can be replaced.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ottla_broker.config import BROKER_SESSION_TIMEOUT_MS, CONTROLLER_QUORUM_FETCH_TIMEOUT_MS, Config
from ottla_broker.metadata.image import MetadataDelta
from ottla_broker.metadata.metadata_fetch import LeaderAndEpoch, MetadataFetchRequest, MetadataFetchResponse
from ottla_broker.metadata.metadata_log import MetadataLog
from ottla_broker.metadata.raft_rules import EpochAndOffset, VoteRequest
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.voter_set import ReplicaKey, Voter, VoterSet
from ottla_broker.wire.errors import ErrorCode


class CommitLog(Protocol):
    """The part of the quorum's interface that the controller uses."""

    async def commit(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """Commits `records` as one batch. On return they are applied to the image and in every
        later leader's log.

        Raises KAFKA_STORAGE_ERROR, or NOT_CONTROLLER when this broker does not lead or leads no
        longer; then the records may or may not be committed later.
        """
        ...

    def hears_majority(self, within_s: float) -> bool:
        """True if this broker leads and a majority of the voters has fetched within this time.
        Otherwise another controller may have been elected."""
        ...


class QuorumReplica(msgspec.Struct, frozen=True):
    """A replica as DescribeQuorum returns it. −1 for what is unknown; times in milliseconds of wall
    clock.
    """

    key: ReplicaKey
    log_end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1


class QuorumDescription(msgspec.Struct, frozen=True):
    """`endpoints`: (host, port) of voters, by broker id."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[str, int]]


class ReplicaDescription(msgspec.Struct, frozen=True):
    """This broker's replica of the metadata log, with or without a leader. `leader_id`: −1 without
    one. `address`: host:port for other brokers. `voted_id`: the candidate that it voted for in this
    epoch, −1 for none.
    """

    key: ReplicaKey
    address: str
    leader_id: int
    epoch: int
    log_end: EpochAndOffset
    high_watermark: int
    voters: VoterSet
    voted_id: int = -1


class MetadataQuorum(CommitLog, Protocol):
    """One broker's part in the quorum: it follows the leader or is the leader."""

    @property
    def metadata_log(self) -> MetadataLog: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def leader_id(self) -> int:
        """The broker that leads the metadata log, as far as this one knows; −1 without a leader."""
        ...

    @property
    def epoch(self) -> int:
        """The newest epoch that this broker knows; 0 before the first."""
        ...

    def leader_endpoint(self) -> tuple[str, int] | None: ...

    def describe(self) -> QuorumDescription:
        """Raises NOT_CONTROLLER when another broker leads."""
        ...

    def describe_replica(self) -> ReplicaDescription: ...

    async def run(self) -> None:
        """Takes part in the quorum until cancelled. Raises KafkaError when this broker cannot."""
        ...

    async def wait_until_caught_up(self) -> None:
        """Returns when the image is as current as the leader's, or this broker leads. Raises the
        error of a `run` that has ended.
        """
        ...

    async def resign(self) -> None:
        """Called before a stop. Hands leadership over to another voter, and returns when that leads
        or after a timeout.
        """
        ...

    async def handle_fetch(self, request: MetadataFetchRequest) -> MetadataFetchResponse: ...

    def current_leader(self) -> LeaderAndEpoch: ...

    def check_receiver(self, cluster_id: str | None, receiver: ReplicaKey | None) -> ErrorCode:
        """The error of a request between replicas that is for another cluster or another replica.
        `receiver`: the replica that the request is for; None for any.
        """
        ...

    async def add_voter(self, voter: Voter, timeout_s: float) -> None:
        """Adds a voter. Returns when the new voter set is committed, as the next two methods do.
        Raises DUPLICATE_VOTER, REQUEST_TIMED_OUT, NOT_CONTROLLER.
        """
        ...

    async def remove_voter(self, key: ReplicaKey, timeout_s: float) -> None:
        """Removes a voter, or the leader itself, which then resigns. Raises VOTER_NOT_FOUND,
        INVALID_REQUEST for the only voter, REQUEST_TIMED_OUT, NOT_CONTROLLER.
        """
        ...

    async def update_voter(self, voter: Voter, timeout_s: float) -> None:
        """Changes a voter's address and versions. Raises INVALID_REQUEST, VOTER_NOT_FOUND,
        REQUEST_TIMED_OUT, NOT_CONTROLLER.
        """
        ...

    async def handle_vote(self, request: VoteRequest) -> tuple[ErrorCode, bool]:
        """Returns the error and whether the vote is granted, once the vote is stored. Raises
        KAFKA_STORAGE_ERROR.
        """
        ...

    async def handle_begin_quorum_epoch(self, leader: LeaderAndEpoch) -> None:
        """Called when a broker announces that it leads the epoch. Raises KAFKA_STORAGE_ERROR."""
        ...

    async def handle_end_quorum_epoch(self, leader: LeaderAndEpoch, successors: tuple[ReplicaKey, ...]) -> None:
        """Called when the leader requests the election of another one, preferably the first of
        `successors`. Raises KAFKA_STORAGE_ERROR.
        """
        ...


def leadership_timeout_s(config: Config) -> float:
    """Time for which a controller without a majority continues to answer as controller: followers
    elect no other leader before their fetch timeout.
    """
    return min(config(BROKER_SESSION_TIMEOUT_MS), config(CONTROLLER_QUORUM_FETCH_TIMEOUT_MS)) / 1000
