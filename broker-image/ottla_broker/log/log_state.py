"""The state of one partition's log, which every operation on the log takes and changes.

Operations are functions over `LogState`, in modules named for them: `appending`, `reading`,
`rolling`, `retention`, `truncation`, `flush`, `producer_rebuild`, `recovery`. `PartitionLog` offers
them as methods.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from ottla_broker.log import file_names
from ottla_broker.log.config import LogConfig
from ottla_broker.log.indexes import CorruptSegment
from ottla_broker.log.leader_epochs import LeaderEpochs
from ottla_broker.log.producer_snapshots import ProducerSnapshots
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.record_validation import must_validate_records
from ottla_broker.log.segment import Segment
from ottla_broker.log.segments import Segments
from ottla_broker.log.storage import Storage, is_out_of_resources
from ottla_broker.log.tail_cache import TailCache
from ottla_broker.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FlushState:
    """The part of a log that is on stable storage.

    Records below `flushed_offset` are durable. Below `recovery_point` indexes, leader epochs and
    producer state are durable too, so that a restart reads nothing there.
    """

    flushed_offset: int = 0
    recovery_point: int = 0
    # A flush that began before a truncation proves nothing about what is written after it.
    truncation_count: int = 0
    # How often files were created in the folder, and for how many of these creations the names are
    # known to be durable.
    creation_count: int = 1
    durable_creation_count: int = 0
    is_folder_name_durable: bool = False
    has_rolled_segment: bool = False
    unflushed_since_ms: int = -1
    running_sync: "asyncio.Task[None] | None" = None

    @property
    def has_names_at_risk(self) -> bool:
        """True if a loss of power could leave a file of the folder without its name."""
        return self.durable_creation_count < self.creation_count

    def move_to(self, opened: "FlushState") -> None:
        """Takes over the durable offsets of the log's copy in another folder, and invalidates the
        flush in progress.
        """
        self.truncation_count += 1
        self.flushed_offset, self.recovery_point = opened.flushed_offset, opened.recovery_point
        self.creation_count, self.durable_creation_count = opened.creation_count, opened.durable_creation_count
        self.is_folder_name_durable = False

    def truncate_to(self, offset: int) -> None:
        """Takes both offsets back to `offset` and invalidates the flush in progress."""
        self.truncation_count += 1
        self.flushed_offset = min(self.flushed_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)


@dataclass(slots=True, eq=False, repr=False)
class LogState:
    """The state of a log. A new one has no records and starts and ends at `start`; `log.recovery`
    fills it.

    `start`: log start offset; `end`: log end offset, which the next record gets. `failure`: why the
    partition is offline (KAFKA_STORAGE_ERROR) or that it was deleted (UNKNOWN_TOPIC_OR_PARTITION);
    None while it works. Operations raise it. `files_to_delete`: (wall time in ms when it is due to
    be removed, path) of each file that was renamed to `.deleted`. `is_checkpoint_stale`: an offset
    changed since the directory's checkpoint files were written. `is_moving`: the log is being
    copied to another log directory, and compaction waits.
    """

    topic: str
    partition: int
    directory: str
    config: LogConfig
    storage: Storage
    start: int = 0
    topic_id: UUID | None = None
    failure: KafkaError | None = None
    is_checkpoint_stale: bool = True
    is_moving: bool = False
    files_to_delete: list[tuple[int, str]] = field(default_factory=list)
    flush: FlushState = field(default_factory=FlushState)
    producers: ProducerStates = field(default_factory=ProducerStates)
    end: int = field(init=False)
    high_watermark: int = field(init=False)
    segments: Segments = field(init=False)
    epochs: LeaderEpochs = field(init=False)
    snapshots: ProducerSnapshots = field(init=False)
    tail: TailCache = field(init=False)
    appends_unchanged: bool = field(init=False)
    validates_records: bool = field(init=False)
    validates_schema_ids: bool = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.high_watermark = self.start
        self.segments = Segments([Segment(self.storage.files, self.directory, self.start)])
        self.epochs = LeaderEpochs(f"{self.directory}/{file_names.LEADER_EPOCHS}")
        self.snapshots = ProducerSnapshots(self.storage.disk, self.directory)
        self.tail = TailCache(self.storage.tails)
        self.set_config(self.config)

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} [{self.start}, {self.end})>"

    def set_config(self, config: LogConfig) -> None:
        self.config = config
        # Computed once, because every append asks whether a client's batch is written as it came.
        self.appends_unchanged = config.compression_type == "producer" and config.message_timestamp_type == "CreateTime"
        self.validates_records = must_validate_records(config)
        self.validates_schema_ids = config.validates_values or config.validates_keys

    def advance_high_watermark(self, offset: int) -> None:
        """Sets the high watermark to `offset`, or to the log's start or end if `offset` is outside
        of them."""
        self.high_watermark = min(max(offset, self.start), self.end)
        self.producers.remove_replicated_transactions(self.high_watermark)
        self.is_checkpoint_stale = True

    def raise_start(self, offset: int) -> None:
        """Raises the log start offset: records below it can no longer be read."""
        self.start = offset
        self.epochs.truncate_from_start(offset)
        self.advance_high_watermark(max(self.high_watermark, offset))

    # --- failures

    def take_offline(self, reason: KafkaError) -> None:
        """Makes every operation fail with `reason`, unless there is an earlier reason."""
        if self.failure is None:
            logger.error("%s-%d is offline: %s", self.topic, self.partition, reason.message)
            self.failure = reason

    def storage_error(
        self, action: str, path: str, error: OSError | CorruptSegment, offset: int | None = None
    ) -> KafkaError:
        """The KAFKA_STORAGE_ERROR to raise for an error of the disk, or for corrupt bytes near
        `offset`.

        It takes the partition offline, unless the disk is full or file descriptors are exhausted,
        which is temporary.
        """
        if isinstance(error, CorruptSegment):
            message, is_transient = f"{error}, near offset {offset}", False
        else:
            message, is_transient = f"{action} of {path} failed: {error.strerror or error}", is_out_of_resources(error)
        reason = KafkaError(ErrorCode.kafka_storage_error, message)
        if not is_transient:
            self.take_offline(reason)
        return reason

    @contextmanager
    def storage_errors(self, action: str, path: str, offset: int) -> Iterator[None]:
        """Raises `storage_error` in place of an OSError or CorruptSegment."""
        try:
            yield
        except (OSError, CorruptSegment) as error:
            raise self.storage_error(action, path, error, offset) from error
