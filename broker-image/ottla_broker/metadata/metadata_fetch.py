"""What a broker asks and is told when it copies the metadata log; in what messages, is `fetch_messages`' matter."""

from dataclasses import dataclass
from uuid import UUID

from ottla_broker.log.leader_epochs import LeaderEpochs
from ottla_broker.metadata.quorum_rules import EpochAndOffset
from ottla_broker.wire.errors import ErrorCode

METADATA_TOPIC_ID = UUID(int=1)  # the id that Kafka reserves for its own metadata topic
CONSUMER_REPLICA_ID = -1
UNKNOWN_OFFSET = -1
NO_EPOCH_AND_OFFSET = EpochAndOffset(-1, -1)


@dataclass(frozen=True, slots=True)
class MetadataFetchRequest:
    """What a broker (or a consumer, `replica` −1) wants of the metadata log. `position`: how far its own copy goes on its device.

    `epoch`: of the leader that it follows; `high_watermark`: what it knows to be committed, so that it can be told of more.
    """

    replica_id: int
    directory_id: UUID | None
    leader_epoch: int
    log_end: EpochAndOffset
    high_watermark: int = UNKNOWN_OFFSET
    max_bytes: int = 1 << 20
    max_wait_ms: int = 0
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class MetadataFetchResponse:
    """`high_watermark` −1: the leader has not settled yet, and says nothing of the log. `diverging`: where the asker's log may still agree with
    the leader's. `snapshot`: what to fetch instead of records that are gone."""

    error: ErrorCode = ErrorCode.none
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    records: bytes = b""
    diverging_epoch: EpochAndOffset | None = None
    snapshot_id: EpochAndOffset | None = None


def find_diverging_epoch(epochs: LeaderEpochs, log_end: int, asked: EpochAndOffset) -> EpochAndOffset | None:
    """None when a log that goes as far as `asked` is a beginning of this one; else the largest epoch of this log that is not above the asker's,
    and its end, as KIP-595 has it."""
    if asked.offset == 0:
        return None
    epoch, end = epochs.end_offset_for(asked.epoch, log_end)
    if epoch == asked.epoch and asked.offset <= end:
        return None
    return EpochAndOffset(epoch, max(end, 0))


def truncation_offset(epochs: LeaderEpochs, log_end: int, diverging: EpochAndOffset) -> int:
    """The offset from which on a follower's log is not its leader's, as far as can be told from where the leader says that they part."""
    epoch, end = epochs.end_offset_for(diverging.epoch, log_end)
    return min(diverging.offset, log_end if epoch < 0 else end)
