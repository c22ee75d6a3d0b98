"""A partition of another cluster's topic that this broker leads and fills: its state, and how a
fetch response changes it.

- Batches are appended as they come. An offset policy decides at which offsets (`identical_offsets`,
  `appended_offsets`).
- A leader epoch of the source is recorded in the metadata before its first record is appended
  (`source_epochs`).
- Records that replace lost ones at the source are never mixed with the mirrored ones: the partition
  stops as diverged.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Protocol
from uuid import UUID

from ottla_broker.log.validation import HeaderFields
from ottla_broker.metadata.mirror_plans import MirrorReport
from ottla_broker.mirroring.source_epochs import EpochEntries, EpochRegression, epochs_after_append
from ottla_broker.replication.partition import Partition
from ottla_broker.wire.batch import HEADER_SIZE
from ottla_broker.wire.errors import ErrorCode
from ottla_broker.wire.fetch_request import FetchRequestPartition
from ottla_broker.wire.fetch_response import FetchResponsePartition

UNKNOWN: Final = -1
BYTES_PER_OFFSET_WINDOW: Final = 16 << 20  # older bytes count for half with every further window of bytes

SendReport = Callable[[str, MirrorReport], Awaitable[None]]
"""Sends a leader's report with the topic's name to the controller and returns when it is committed.

Raises KafkaError, OSError, TimeoutError.
"""


class FetchOutcome(Enum):
    """The consequence of a fetch response for the next request of the partition."""

    unchanged = auto()  # the next position is the same
    advanced = auto()  # the next position has changed
    new_epochs = auto()  # `unrecorded_epochs` must be recorded in the metadata first
    out_of_range = auto()  # the source's log does not contain the position
    not_leader = auto()  # this broker of the source does not lead the partition of this topic id, or its disk failed
    diverged = auto()  # the source's log is not the one that was mirrored; `reason` says why
    retriable_error = auto()  # a temporary error of the source


NOT_LEADER_ERRORS: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.leader_not_available,
        ErrorCode.replica_not_available,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.kafka_storage_error,
    }
)


class OffsetPolicy(Protocol):
    """Chooses the offsets at which mirrored records are appended. All offsets and epochs in it are
    those of the source.
    """

    def position(self, mirrored: "MirroredPartition") -> int:
        """Next offset to fetch."""

    def last_record_epoch(self, mirrored: "MirroredPartition") -> int:
        """Leader epoch of the record before the position; −1 if unknown."""

    def source_id(self, mirrored: "MirroredPartition") -> UUID | None:
        """Source topic for reports to the controller; None where a topic can have only one
        source.
        """

    def append_batches(self, mirrored: "MirroredPartition", data: FetchResponsePartition) -> FetchOutcome | None:
        """Appends the batches of a response. Returns the outcome that prevents it, or None."""

    def handle_divergence(self, mirrored: "MirroredPartition", epoch: int, end: int) -> FetchOutcome:
        """Reacts to a diverging epoch: the source has records of `epoch` only up to `end`."""

    def handle_out_of_range(self, mirrored: "MirroredPartition", start: int, end: int) -> FetchOutcome:
        """Reacts to OFFSET_OUT_OF_RANGE: the source's log goes from `start` to `end`."""

    def advance_log_start(self, mirrored: "MirroredPartition") -> None:
        """Deletes records that the source has deleted, as far as the policy mirrors deletion."""


@dataclass(slots=True, eq=False)
class LastResponse:
    """Time of the last response of a broker of the source, by the loop's clock. It responds within
    `fetch.max.wait.ms`, with records or without.
    """

    received_s: float = UNKNOWN


@dataclass(slots=True, eq=False)
class BytesPerOffset:
    """Average bytes per offset, over the bytes that were fetched last."""

    size: float = 0.0
    offsets: float = 0.0

    def add(self, size: int, offsets: int) -> None:
        self.size += size
        self.offsets += offsets
        while self.size > 2 * BYTES_PER_OFFSET_WINDOW:
            self.size /= 2
            self.offsets /= 2


@dataclass(slots=True, eq=False)
class MirroredPartition:
    """A partition that this broker leads, in one leader epoch.

    `source_epochs`: the source's leader epochs that are recorded in the metadata;
    `unrecorded_epochs`: what they have to be before further records are appended.
    `source_high_watermark` and `source_log_start` are the source's as last seen.
    `last_caught_up_s` is when the partition last had every record, by the loop's clock, or when the
    first response came if it never had. `reason`: why the partition does not advance, as text for
    people. `requested_offset`, `named_in`, `in_session` and `retry_at_s`: see
    `fetch_session_handler.FetchedPartition`.
    """

    partition: Partition
    source_topic: str
    source_id: UUID
    source_epochs: EpochEntries
    offset_policy: OffsetPolicy
    leader_epoch: int = field(init=False)
    source_high_watermark: int = UNKNOWN
    source_log_start: int = UNKNOWN
    requested_offset: int = UNKNOWN
    last_caught_up_s: float = UNKNOWN
    unrecorded_epochs: EpochEntries = ()
    reason: str = ""
    named_in: int = 0
    in_session: bool = False
    retry_pause_s: float = 0.0
    retry_at_s: float = 0.0
    bytes_per_offset: BytesPerOffset = field(default_factory=BytesPerOffset)
    last_response: LastResponse = field(default_factory=LastResponse)

    def __post_init__(self) -> None:
        self.leader_epoch = self.partition.leader_epoch

    @property
    def key(self) -> tuple[UUID, int]:
        return self.source_id, self.partition.partition

    @property
    def is_leader(self) -> bool:
        """True while this broker leads the partition in the same epoch."""
        return self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch

    @property
    def position(self) -> int:
        """Next offset to fetch from the source."""
        return self.offset_policy.position(self)

    @property
    def last_record_epoch(self) -> int:
        return self.offset_policy.last_record_epoch(self)

    def next_fetch(self, max_bytes: int) -> FetchRequestPartition:
        return FetchRequestPartition(
            self.source_id,
            self.partition.partition,
            self.position,
            max_bytes,
            last_fetched_epoch=self.last_record_epoch,
        )

    def lag_s(self, now_s: float) -> float:
        """Seconds since the partition last had every record; 0 if it has, or before the first
        response."""
        return 0.0 if not self.lag else max(now_s - self.last_caught_up_s, 0.0)

    @property
    def lag(self) -> int:
        """Offsets by which the source's high watermark is ahead; 0 before the first response."""
        return max(self.source_high_watermark - self.position, 0)

    @property
    def lag_bytes(self) -> int:
        """Estimate of the missing bytes: the lag times the average bytes per offset, of what was
        fetched last or else of the log here; −1 if neither has any.
        """
        if not self.lag:
            return 0
        log, average = self.partition.log, self.bytes_per_offset
        if average.offsets:
            return round(self.lag * average.size / average.offsets)
        return round(self.lag * log.size / (log.end - log.start)) if log.end > log.start else UNKNOWN

    def source_silence_s(self, now_s: float) -> float:
        """Seconds since the source's broker last responded; −1 if it never has."""
        received_s = self.last_response.received_s
        return UNKNOWN if received_s == UNKNOWN else max(now_s - received_s, 0.0)

    def find_new_epochs(self, start: int, end: int, batches: Sequence[tuple[int, HeaderFields]]) -> FetchOutcome | None:
        """Checks the leader epochs of `batches`, which follow the mirrored records from `start` to
        `end`.

        Returns the outcome that prevents the append, or None.
        """
        try:
            self.unrecorded_epochs = epochs_after_append(self.source_epochs, start, end, batches) or ()
        except EpochRegression as reason:
            return self.diverge(f"the source's log is not the one that was mirrored: {reason}")
        return FetchOutcome.new_epochs if self.unrecorded_epochs else None

    def diverge(self, reason: str) -> FetchOutcome:
        """Stores the reason for which mirroring stops."""
        self.reason = reason
        return FetchOutcome.diverged

    def diverge_at_epoch(self, epoch: int, end: int) -> FetchOutcome:
        return self.diverge(
            f"the source has lost mirrored records: it has leader epoch {epoch} only up to offset {end}, and the"
            f" mirrored records end at {self.position} in epoch {self.last_record_epoch}"
        )

    def diverge_at_end(self, end: int) -> FetchOutcome:
        return self.diverge(
            f"the source has lost mirrored records: its log ends at offset {end}, and the mirrored records end at"
            f" {self.position}"
        )


def process_partition_data(mirrored: MirroredPartition, data: FetchResponsePartition, now_s: float) -> FetchOutcome:
    """Applies one partition of a fetch response.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD (batches in an old format),
    KAFKA_STORAGE_ERROR.
    """
    if data.error is not ErrorCode.none:
        if data.error is ErrorCode.offset_out_of_range:
            return FetchOutcome.out_of_range
        return FetchOutcome.not_leader if data.error in NOT_LEADER_ERRORS else FetchOutcome.retriable_error
    if data.diverging is not None:
        return mirrored.offset_policy.handle_divergence(mirrored, *data.diverging)
    before = mirrored.position
    if len(data.records) >= HEADER_SIZE:
        if mirrored.requested_offset != before:
            # The log was truncated while the request was in flight: these batches do not follow its
            # end.
            return FetchOutcome.advanced
        if (outcome := mirrored.offset_policy.append_batches(mirrored, data)) is not None:
            return outcome
    mirrored.source_high_watermark = max(data.high_watermark, 0)
    if mirrored.position >= mirrored.source_high_watermark or mirrored.last_caught_up_s == UNKNOWN:
        mirrored.last_caught_up_s = now_s
    mirrored.source_log_start = data.log_start
    mirrored.offset_policy.advance_log_start(mirrored)
    return FetchOutcome.unchanged if mirrored.position == before else FetchOutcome.advanced
