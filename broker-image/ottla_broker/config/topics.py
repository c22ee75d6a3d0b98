"""What a topic may say for itself. Where it does not, the broker setting behind it counts."""

from ottla_broker.config import logs, replication
from ottla_broker.config.addresses import throttled_replica
from ottla_broker.config.setting import Default, Setting, Theme
from ottla_broker.config.value_types import MAX_INT64, boolean, double, integer, list_of, long, one_of, only

_NO_TIERS = "records are kept on the broker's own disks only"
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000

_cleanup = Theme("Topics: what is kept")

TOPIC_CLEANUP_POLICY: Setting[tuple[str, ...]] = _cleanup.topic(
    "cleanup.policy",
    list_of(*logs.POLICIES),
    ("delete",),
    "`delete` drops old segments by age and size; `compact` keeps the last record of every key; both do both.",
    logs.LOG_CLEANUP_POLICY,
)
TOPIC_RETENTION_MS = _cleanup.topic(
    "retention.ms",
    long(at_least=-1),
    7 * 24 * _HOUR_MS,
    "A segment whose newest record is older than so many milliseconds is dropped. -1: no limit.",
    logs.LOG_RETENTION_MS,
    Default(logs.LOG_RETENTION_MINUTES, _MINUTE_MS),
    Default(logs.LOG_RETENTION_HOURS, _HOUR_MS),
)
TOPIC_RETENTION_BYTES = _cleanup.topic(
    "retention.bytes",
    long(),
    -1,
    "The oldest segments of a partition are dropped while it would still be as large as so many bytes without them. -1: no limit.",
    logs.LOG_RETENTION_BYTES,
)
TOPIC_DELETE_RETENTION_MS = _cleanup.topic(
    "delete.retention.ms",
    long(at_least=0),
    86400000,
    "How long the tombstone of a deleted key stays in a compacted topic, in milliseconds: the time a reader has to see it.",
    logs.LOG_CLEANER_DELETE_RETENTION_MS,
)
TOPIC_MIN_COMPACTION_LAG_MS = _cleanup.topic(
    "min.compaction.lag.ms",
    long(at_least=0),
    0,
    "A record is not compacted away before it is so many milliseconds old.",
    logs.LOG_CLEANER_MIN_COMPACTION_LAG_MS,
)
TOPIC_MAX_COMPACTION_LAG_MS = _cleanup.topic(
    "max.compaction.lag.ms",
    long(at_least=1),
    MAX_INT64,
    "A record that another has replaced is compacted away at the latest so many milliseconds after it was written.",
    logs.LOG_CLEANER_MAX_COMPACTION_LAG_MS,
)
TOPIC_MIN_CLEANABLE_DIRTY_RATIO = _cleanup.topic(
    "min.cleanable.dirty.ratio",
    double(0, 1),
    0.5,
    "A log is compacted when so large a part of it has not been yet: lower keeps it smaller and costs more reading and writing.",
    logs.LOG_CLEANER_MIN_CLEANABLE_RATIO,
)
TOPIC_FILE_DELETE_DELAY_MS = _cleanup.topic(
    "file.delete.delay.ms",
    long(at_least=0),
    60000,
    "How long a dropped segment's files stay on disk under another name, in milliseconds.",
    logs.LOG_SEGMENT_DELETE_DELAY_MS,
)

_segments = Theme("Topics: segments and flushing")

TOPIC_SEGMENT_BYTES = _segments.topic(
    "segment.bytes",
    integer(at_least=logs.SMALLEST_SEGMENT_BYTES),
    1073741824,
    "Size in bytes at which a new segment is begun. Retention and compaction work on whole segments.",
    logs.LOG_SEGMENT_BYTES,
)
TOPIC_SEGMENT_MS = _segments.topic(
    "segment.ms",
    long(at_least=1),
    7 * 24 * _HOUR_MS,
    "Age in milliseconds at which a new segment is begun even when the old one is not full.",
    logs.LOG_ROLL_MS,
    Default(logs.LOG_ROLL_HOURS, _HOUR_MS),
)
TOPIC_SEGMENT_JITTER_MS = _segments.topic(
    "segment.jitter.ms",
    long(at_least=0),
    0,
    "The age is lowered by chance, by at most so many milliseconds, so that many partitions do not begin segments at the same moment.",
    logs.LOG_ROLL_JITTER_MS,
    Default(logs.LOG_ROLL_JITTER_HOURS, _HOUR_MS),
)
TOPIC_SEGMENT_INDEX_BYTES = _segments.topic(
    "segment.index.bytes",
    integer(at_least=4),
    10485760,
    "The largest index of a segment in bytes; a full index begins a new segment.",
    logs.LOG_INDEX_SIZE_MAX_BYTES,
)
TOPIC_INDEX_INTERVAL_BYTES = _segments.topic(
    "index.interval.bytes",
    integer(at_least=0),
    4096,
    "Bytes of records between two entries of an index.",
    logs.LOG_INDEX_INTERVAL_BYTES,
)
TOPIC_PREALLOCATE = _segments.topic(
    "preallocate",
    boolean(),
    False,
    "Asks for a new segment's file to take its full size at once. Has no effect: a file takes as much as is in it.",
    logs.LOG_PREALLOCATE,
)
TOPIC_FLUSH_MESSAGES = _segments.topic(
    "flush.messages",
    long(at_least=1),
    MAX_INT64,
    "Records between two fsyncs. 1: a produce is acknowledged only when it is on stable storage; all that wait share one fsync. "
    "Otherwise durability comes from replicas, as in Kafka.",
    logs.LOG_FLUSH_INTERVAL_MESSAGES,
)
TOPIC_FLUSH_MS = _segments.topic(
    "flush.ms",
    long(at_least=0),
    MAX_INT64,
    "The longest that records stay unsynced, in milliseconds.",
    logs.LOG_FLUSH_INTERVAL_MS,
    logs.LOG_FLUSH_SCHEDULER_INTERVAL_MS,
)

_records = Theme("Topics: records")

TOPIC_MAX_MESSAGE_BYTES = _records.topic(
    "max.message.bytes",
    integer(at_least=0),
    1048588,
    "The largest batch in bytes, as the producer sends it (after compression).",
    logs.MESSAGE_MAX_BYTES,
)
TOPIC_COMPRESSION_TYPE: Setting[logs.CompressionName] = _records.topic(
    "compression.type",
    one_of(*logs.COMPRESSIONS),
    "producer",
    "How batches are stored: `producer` keeps each as it came, which costs the broker nothing; another value recompresses those that "
    "differ.",
    logs.COMPRESSION_TYPE,
)
TOPIC_COMPRESSION_GZIP_LEVEL = _records.topic(
    "compression.gzip.level",
    integer(1, 9, also=-1),
    -1,
    "Level when batches are recompressed with gzip.",
    logs.COMPRESSION_GZIP_LEVEL,
)
TOPIC_COMPRESSION_LZ4_LEVEL = _records.topic(
    "compression.lz4.level",
    integer(1, 17),
    9,
    "Level when batches are recompressed with lz4.",
    logs.COMPRESSION_LZ4_LEVEL,
)
TOPIC_COMPRESSION_ZSTD_LEVEL = _records.topic(
    "compression.zstd.level",
    integer(-131072, 22),
    3,
    "Level when batches are recompressed with zstd.",
    logs.COMPRESSION_ZSTD_LEVEL,
)
TOPIC_MESSAGE_TIMESTAMP_TYPE: Setting[logs.TimestampType] = _records.topic(
    "message.timestamp.type",
    one_of(*logs.TIMESTAMP_TYPES),
    "CreateTime",
    "`CreateTime` keeps the producer's timestamps; `LogAppendTime` puts the broker's clock in their place.",
    logs.LOG_MESSAGE_TIMESTAMP_TYPE,
)
TOPIC_MESSAGE_TIMESTAMP_BEFORE_MAX_MS = _records.topic(
    "message.timestamp.before.max.ms",
    long(at_least=0),
    MAX_INT64,
    "With `CreateTime`, a batch with a timestamp further behind the broker's clock than so many milliseconds is refused.",
    logs.LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS,
)
TOPIC_MESSAGE_TIMESTAMP_AFTER_MAX_MS = _records.topic(
    "message.timestamp.after.max.ms",
    long(at_least=0),
    3600000,
    "With `CreateTime`, a batch with a timestamp further ahead of the broker's clock than so many milliseconds is refused.",
    logs.LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
)

_replicas = Theme("Topics: replicas")

TOPIC_MIN_INSYNC_REPLICAS = _replicas.topic(
    "min.insync.replicas",
    integer(at_least=1),
    1,
    "A produce with acks=all is refused while fewer replicas than this are in sync.",
    replication.MIN_INSYNC_REPLICAS,
)
TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = _replicas.topic(
    "unclean.leader.election.enable",
    boolean(),
    False,
    "Whether a replica that is not in sync may become leader when no other lives, losing what only the others had.",
    replication.UNCLEAN_LEADER_ELECTION_ENABLE,
)
TOPIC_LEADER_REPLICATION_THROTTLED_REPLICAS: Setting[tuple[str, ...]] = _replicas.topic(
    "leader.replication.throttled.replicas",
    list_of(allowed="partition:broker pairs separated by commas, or *", check=throttled_replica),
    (),
    "The replicas whose leader sends no faster than `leader.replication.throttled.rate`.",
)
TOPIC_FOLLOWER_REPLICATION_THROTTLED_REPLICAS: Setting[tuple[str, ...]] = _replicas.topic(
    "follower.replication.throttled.replicas",
    list_of(allowed="partition:broker pairs separated by commas, or *", check=throttled_replica),
    (),
    "The replicas that take no more than `follower.replication.throttled.rate`.",
)

_tiers = Theme("Topics: tiered storage, which Ottla does not have yet")

TOPIC_REMOTE_STORAGE_ENABLE = _tiers.topic(
    "remote.storage.enable", only(boolean(), False, _NO_TIERS), False, "Whether segments move to remote storage."
)
TOPIC_REMOTE_LOG_COPY_DISABLE = _tiers.topic(
    "remote.log.copy.disable", only(boolean(), False, _NO_TIERS), False, "Whether that movement rests."
)
TOPIC_REMOTE_LOG_DELETE_ON_DISABLE = _tiers.topic(
    "remote.log.delete.on.disable",
    only(boolean(), False, _NO_TIERS),
    False,
    "Whether what was moved is deleted when remote storage is switched off.",
)
TOPIC_LOCAL_RETENTION_MS = _tiers.topic(
    "local.retention.ms",
    only(long(), -2, _NO_TIERS),
    -2,
    "How long segments that were moved stay on the broker's disks. -2: as `retention.ms` says.",
)
TOPIC_LOCAL_RETENTION_BYTES = _tiers.topic(
    "local.retention.bytes",
    only(long(), -2, _NO_TIERS),
    -2,
    "How many bytes of segments that were moved stay on the broker's disks. -2: as `retention.bytes` says.",
)
