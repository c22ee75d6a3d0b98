"""What a broker asks and is told when it copies the metadata log; in what messages, is `fetch_messages`' matter."""

from dataclasses import dataclass
from uuid import UUID

from ottla_broker.log.epochs import LeaderEpochs
from ottla_broker.metadata.quorum_rules import Position
from ottla_broker.wire.errors import ErrorCode

METADATA_TOPIC_ID = UUID(int=1)  # the id that Kafka reserves for its own metadata topic
CONSUMER = -1
UNKNOWN = -1
NOTHING = Position(-1, -1)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a broker (or a consumer, `replica` −1) wants of the metadata log. `position`: how far its own copy goes on its device.

    `epoch`: of the leader that it follows; `high_watermark`: what it knows to be committed, so that it can be told of more.
    """

    replica: int
    directory: UUID | None
    epoch: int
    position: Position
    high_watermark: int = UNKNOWN
    max_bytes: int = 1 << 20
    max_wait_ms: int = 0
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """`high_watermark` −1: the leader has not settled yet, and says nothing of the log. `diverging`: where the asker's log may still agree with
    the leader's. `snapshot`: what to fetch instead of records that are gone."""

    error: ErrorCode = ErrorCode.none
    high_watermark: int = UNKNOWN
    log_start: int = UNKNOWN
    records: bytes = b""
    diverging: Position | None = None
    snapshot: Position | None = None


def agreement(epochs: LeaderEpochs, log_end: int, asked: Position) -> Position | None:
    """None when a log that goes as far as `asked` is a beginning of this one; else the largest epoch of this log that is not above the asker's,
    and its end, as KIP-595 has it."""
    if asked.end == 0:
        return None
    epoch, end = epochs.end_of(asked.epoch, log_end)
    if epoch == asked.epoch and asked.end <= end:
        return None
    return Position(epoch, max(end, 0))


def where_to_cut(epochs: LeaderEpochs, log_end: int, diverging: Position) -> int:
    """The offset from which on a follower's log is not its leader's, as far as can be told from where the leader says that they part."""
    epoch, end = epochs.end_of(diverging.epoch, log_end)
    return min(diverging.end, log_end if epoch < 0 else end)
