"""Fetches of the metadata log as values; `quorum_messages` converts them to protocol messages."""

from uuid import UUID

import msgspec

from ottla_broker.log.leader_epochs import LeaderEpochs
from ottla_broker.metadata.raft_rules import EpochAndOffset
from ottla_broker.metadata.records import NO_LEADER
from ottla_broker.metadata.voter_set import QuorumEndpoint
from ottla_broker.wire.errors import ErrorCode

METADATA_TOPIC_ID = UUID(int=1)  # the id that Kafka reserves for its own metadata topic
CONSUMER_REPLICA_ID = -1
UNKNOWN_OFFSET = -1
NO_EPOCH_AND_OFFSET = EpochAndOffset(-1, -1)


class LeaderAndEpoch(msgspec.Struct, frozen=True):
    """The newest epoch that a broker knows, and the id (−1: unknown) and the endpoint of its
    leader.
    """

    epoch: int
    leader: int = NO_LEADER
    endpoint: QuorumEndpoint | None = None


class MetadataFetchRequest(msgspec.Struct, frozen=True):
    """A broker's fetch, or a consumer's with `replica_id` −1. `log_end`: the end of the sender's
    log on its device; `leader_epoch`: epoch of the leader that it follows; `high_watermark`: the
    newest one it knows."""

    replica_id: int
    directory_id: UUID | None
    leader_epoch: int
    log_end: EpochAndOffset
    high_watermark: int = UNKNOWN_OFFSET
    max_bytes: int = 1 << 20
    max_wait_ms: int = 0
    cluster_id: str | None = None


class MetadataFetchResponse(msgspec.Struct, frozen=True):
    """`high_watermark` −1: the leader does not know it yet. `diverging_epoch`: the epoch and its
    end offset up to which the follower's log may agree with the leader's. `snapshot_id`: the
    snapshot to fetch instead of deleted records. `leader`: with an error, the leader that the
    responding broker knows."""

    error: ErrorCode = ErrorCode.none
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    records: bytes = b""
    diverging_epoch: EpochAndOffset | None = None
    snapshot_id: EpochAndOffset | None = None
    leader: LeaderAndEpoch | None = None


def find_diverging_epoch(epochs: LeaderEpochs, log_end: int, follower_end: EpochAndOffset) -> EpochAndOffset | None:
    """The largest epoch of this log that is not above the follower's, and its end offset (KIP-595).
    None when the follower's log is a prefix of this one."""
    if follower_end.offset == 0:
        return None
    epoch, end = epochs.end_offset_for(follower_end.epoch, log_end)
    if epoch == follower_end.epoch and follower_end.offset <= end:
        return None
    return EpochAndOffset(epoch, max(end, 0))


def truncation_offset(epochs: LeaderEpochs, log_end: int, diverging_epoch: EpochAndOffset) -> int:
    """The offset to which a follower truncates its log after a leader's `diverging_epoch`."""
    epoch, end = epochs.end_offset_for(diverging_epoch.epoch, log_end)
    return min(diverging_epoch.offset, log_end if epoch < 0 else end)
