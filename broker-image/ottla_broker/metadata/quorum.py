"""What the controller needs of the metadata quorum, and the descriptions of the quorum that brokers
return to clients. `raft_quorum` has the quorum itself.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ottla_broker.config import BROKER_SESSION_TIMEOUT_MS, CONTROLLER_QUORUM_FETCH_TIMEOUT_MS, Config
from ottla_broker.metadata.image import MetadataDelta
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.records import MetadataRecord
from ottla_broker.metadata.voter_set import QuorumEndpoint, ReplicaKey, VoterSet


class CommitLog(Protocol):
    """The part of `RaftQuorum` that the controller uses."""

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
    """The quorum as DescribeQuorum returns it. `endpoints`: those of voters, by broker id."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, QuorumEndpoint]


class ReplicaDescription(msgspec.Struct, frozen=True):
    """This broker's replica of the metadata log, with or without a leader. `leader_id`: −1 if it
    knows none. `address`: host:port for other brokers. `voted_id`: the candidate that it voted for
    in this epoch, −1 for none.
    """

    key: ReplicaKey
    address: str
    leader_id: int
    epoch: int
    log_end: EpochAndOffset
    high_watermark: int
    voters: VoterSet
    voted_id: int = -1


def leadership_timeout_s(config: Config) -> float:
    """Time for which a controller without a majority continues to answer as controller: followers
    elect no other leader before their fetch timeout.
    """
    return min(config(BROKER_SESSION_TIMEOUT_MS), config(CONTROLLER_QUORUM_FETCH_TIMEOUT_MS)) / 1000
