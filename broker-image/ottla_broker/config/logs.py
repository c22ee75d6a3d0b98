"""What a broker does with its partitions' logs where their topics do not say otherwise, and how often it looks after them."""

from typing import Literal, get_args

from ottla_broker.config.setting import Scope, Setting, Theme
from ottla_broker.config.value_types import MAX_DOUBLE, MAX_INT64, boolean, double, integer, list_of, long, one_of

CompressionName = Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
COMPRESSIONS: tuple[CompressionName, ...] = get_args(CompressionName)
TIMESTAMP_TYPES: tuple[TimestampType, ...] = get_args(TimestampType)
POLICIES = ("compact", "delete")
# Kafka 4.1 asks for 1 MiB; what earlier versions allowed is allowed here, because topics with smaller segments exist.
SMALLEST_SEGMENT_BYTES = 14

_logs = Theme("Logs: defaults for topics", Scope.CLUSTER)

LOG_CLEANUP_POLICY: Setting[tuple[str, ...]] = _logs.broker(
    "log.cleanup.policy", list_of(*POLICIES), ("delete",), "Default of the topics' `cleanup.policy`."
)
COMPRESSION_TYPE: Setting[CompressionName] = _logs.broker(
    "compression.type",
    one_of(*COMPRESSIONS),
    "producer",
    "Default of the topics' `compression.type`.",
    importance="high",
)
COMPRESSION_GZIP_LEVEL = _logs.broker(
    "compression.gzip.level", integer(1, 9, also=-1), -1, "Level for `compression.type=gzip`; -1 is gzip's own default."
)
COMPRESSION_LZ4_LEVEL = _logs.broker("compression.lz4.level", integer(1, 17), 9, "Level for `compression.type=lz4`.")
COMPRESSION_ZSTD_LEVEL = _logs.broker(
    "compression.zstd.level", integer(-131072, 22), 3, "Level for `compression.type=zstd`."
)
MESSAGE_MAX_BYTES = _logs.broker(
    "message.max.bytes",
    integer(at_least=0),
    1048588,
    "Default of the topics' `max.message.bytes`: the largest batch, as it arrives, in bytes.",
    importance="high",
)
LOG_MESSAGE_TIMESTAMP_TYPE: Setting[TimestampType] = _logs.broker(
    "log.message.timestamp.type",
    one_of(*TIMESTAMP_TYPES),
    "CreateTime",
    "Default of the topics' `message.timestamp.type`.",
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = _logs.broker(
    "log.message.timestamp.before.max.ms",
    long(at_least=0),
    MAX_INT64,
    "Default of the topics' `message.timestamp.before.max.ms`.",
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS = _logs.broker(
    "log.message.timestamp.after.max.ms",
    long(at_least=0),
    3600000,
    "Default of the topics' `message.timestamp.after.max.ms`.",
)
LOG_RETENTION_MS: Setting[int | None] = _logs.broker(
    "log.retention.ms",
    long(at_least=1, also=-1),
    None,
    "Default of the topics' `retention.ms`. Not given: `log.retention.minutes`. -1: no limit.",
    importance="high",
)
LOG_RETENTION_MINUTES: Setting[int | None] = _logs.broker(
    "log.retention.minutes",
    integer(at_least=1, also=-1),
    None,
    "The same in minutes. Not given: `log.retention.hours`.",
    importance="high",
    scope=Scope.STATIC,
)
LOG_RETENTION_HOURS = _logs.broker(
    "log.retention.hours",
    integer(at_least=1, also=-1),
    168,
    "The same in hours.",
    importance="high",
    scope=Scope.STATIC,
)
LOG_RETENTION_BYTES = _logs.broker(
    "log.retention.bytes",
    long(),
    -1,
    "Default of the topics' `retention.bytes`, which counts for each partition. -1: no limit.",
    importance="high",
)
LOG_SEGMENT_BYTES = _logs.broker(
    "log.segment.bytes",
    integer(at_least=SMALLEST_SEGMENT_BYTES),
    1073741824,
    "Default of the topics' `segment.bytes`.",
    importance="high",
)
LOG_ROLL_MS: Setting[int | None] = _logs.broker(
    "log.roll.ms",
    long(at_least=1),
    None,
    "Default of the topics' `segment.ms`. Not given: `log.roll.hours`.",
    importance="high",
)
LOG_ROLL_HOURS = _logs.broker(
    "log.roll.hours", integer(at_least=1), 168, "The same in hours.", importance="high", scope=Scope.STATIC
)
LOG_ROLL_JITTER_MS: Setting[int | None] = _logs.broker(
    "log.roll.jitter.ms",
    long(at_least=0),
    None,
    "Default of the topics' `segment.jitter.ms`. Not given: `log.roll.jitter.hours`.",
    importance="high",
)
LOG_ROLL_JITTER_HOURS = _logs.broker(
    "log.roll.jitter.hours", integer(at_least=0), 0, "The same in hours.", importance="high", scope=Scope.STATIC
)
LOG_INDEX_SIZE_MAX_BYTES = _logs.broker(
    "log.index.size.max.bytes", integer(at_least=4), 10485760, "Default of the topics' `segment.index.bytes`."
)
LOG_INDEX_INTERVAL_BYTES = _logs.broker(
    "log.index.interval.bytes", integer(at_least=0), 4096, "Default of the topics' `index.interval.bytes`."
)
LOG_SEGMENT_DELETE_DELAY_MS = _logs.broker(
    "log.segment.delete.delay.ms",
    long(at_least=0),
    60000,
    "Default of the topics' `file.delete.delay.ms`.",
    importance="high",
)
LOG_FLUSH_INTERVAL_MESSAGES = _logs.broker(
    "log.flush.interval.messages",
    long(at_least=1),
    MAX_INT64,
    "Default of the topics' `flush.messages`. 1 makes every acknowledgement wait for an fsync that all waiting share.",
    importance="high",
)
LOG_FLUSH_INTERVAL_MS: Setting[int | None] = _logs.broker(
    "log.flush.interval.ms",
    long(at_least=0),
    None,
    "Default of the topics' `flush.ms`. Not given: `log.flush.scheduler.interval.ms`.",
    importance="high",
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = _logs.broker(
    "log.flush.scheduler.interval.ms",
    long(at_least=1),
    MAX_INT64,
    "How often it is looked whether a log must be flushed by its age, in milliseconds.",
    importance="high",
    scope=Scope.STATIC,
)
LOG_PREALLOCATE = _logs.broker("log.preallocate", boolean(), False, "Default of the topics' `preallocate`.")

_care = Theme("Logs: looking after them")

LOG_RETENTION_CHECK_INTERVAL_MS = _care.broker(
    "log.retention.check.interval.ms",
    long(at_least=1),
    300000,
    "How often segments past their retention are looked for, in milliseconds.",
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = _care.broker(
    "log.flush.offset.checkpoint.interval.ms",
    integer(at_least=1),
    60000,
    "How often recovery points and the starts of logs are written to disk, in milliseconds.",
    importance="high",
)

_cleaner = Theme("Compaction", Scope.CLUSTER)

LOG_CLEANER_ENABLE = _cleaner.broker(
    "log.cleaner.enable",
    boolean(),
    True,
    "Whether compacted topics are compacted. Without it they grow for ever, `__consumer_offsets` among them.",
    scope=Scope.STATIC,
)
LOG_CLEANER_BACKOFF_MS = _cleaner.broker(
    "log.cleaner.backoff.ms",
    long(at_least=0),
    15000,
    "How long compaction rests when there was nothing to do, in milliseconds.",
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = _cleaner.broker(
    "log.cleaner.dedupe.buffer.size",
    long(at_least=1 << 20),
    134217728,
    "Bytes of memory that one pass of compaction may take to remember keys.",
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = _cleaner.broker(
    "log.cleaner.io.max.bytes.per.second",
    double(at_least=1),
    MAX_DOUBLE,
    "Bytes a second that compaction reads and writes at most.",
)
LOG_CLEANER_DELETE_RETENTION_MS = _cleaner.broker(
    "log.cleaner.delete.retention.ms", long(at_least=0), 86400000, "Default of the topics' `delete.retention.ms`."
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS = _cleaner.broker(
    "log.cleaner.min.compaction.lag.ms", long(at_least=0), 0, "Default of the topics' `min.compaction.lag.ms`."
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS = _cleaner.broker(
    "log.cleaner.max.compaction.lag.ms", long(at_least=1), MAX_INT64, "Default of the topics' `max.compaction.lag.ms`."
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = _cleaner.broker(
    "log.cleaner.min.cleanable.ratio", double(0, 1), 0.5, "Default of the topics' `min.cleanable.dirty.ratio`."
)
