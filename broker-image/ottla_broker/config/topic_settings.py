"""Settings of topics, and the broker settings that are their defaults.

The row of a topic setting ends with the broker settings that are its default, of which the first
that is set applies. A broker setting that is given only by its name is declared by this row, with
the type and the default of the topic setting.
"""

from typing import NamedTuple, TypeVar

from ottla_broker.config.cluster_settings import MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION_ENABLE
from ottla_broker.config.setting import BROKER_SETTINGS, TOPIC_SETTINGS, BrokerDefault, Section, Setting, UpdateMode
from ottla_broker.config.value_types import (
    MAX_DOUBLE,
    MAX_INT64,
    ValueType,
    boolean,
    double,
    fixed,
    integer,
    list_of,
    long,
    one_of,
)

T = TypeVar("T")

POLICIES = ("compact", "delete")
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
# Kafka 4.1 requires 1 MiB. Earlier versions allowed less, and topics with smaller segments exist.
MIN_SEGMENT_BYTES = 14

_defaults = Section("Logs: defaults of topics", BROKER_SETTINGS, UpdateMode.CLUSTER_WIDE)


class TopicSection(NamedTuple):
    """A section of topic settings, whose rows name the broker settings that are their defaults."""

    section: Section

    def row(
        self,
        name: str,
        type: ValueType[T],
        default: T | str,
        doc: str,
        *broker_settings: str | Setting[object] | BrokerDefault,
        no_effect: str = "",
    ) -> Setting[T]:
        """`broker_settings`: see the module's docstring."""
        defaults = []
        for one in broker_settings:
            if isinstance(one, str):
                one = _defaults.row(one, type, default, f"Default of the topics' `{name}`.")
            defaults.append(one if isinstance(one, BrokerDefault) else BrokerDefault(one))
        return self.section.row(name, type, default, doc, broker_defaults=tuple(defaults), no_effect=no_effect)


def is_throttled_replica(entry: str) -> bool:
    """True for `partition:broker`, and for `*`, which is all of them."""
    partition, colon, broker = entry.partition(":")
    return entry == "*" or bool(
        colon and partition.isascii() and partition.isdigit() and broker.isascii() and broker.isdigit()
    )


# fmt: off
# Broker settings whose type or default is not that of their topic setting:
LOG_RETENTION_MS = _defaults.row("log.retention.ms", long(at_least=1, also=-1), None,
    "Default of the topics' `retention.ms`. Not set: `log.retention.minutes`. -1: no limit.")
LOG_RETENTION_MINUTES = _defaults.row("log.retention.minutes", integer(at_least=1, also=-1), None,
    "`log.retention.ms` in minutes. Not set: `log.retention.hours`.", UpdateMode.READ_ONLY)
LOG_RETENTION_HOURS = _defaults.row("log.retention.hours", integer(at_least=1, also=-1), 168,
    "`log.retention.ms` in hours.", UpdateMode.READ_ONLY)
LOG_ROLL_MS = _defaults.row("log.roll.ms", long(at_least=1), None,
    "Default of the topics' `segment.ms`. Not set: `log.roll.hours`.")
LOG_ROLL_HOURS = _defaults.row("log.roll.hours", integer(at_least=1), 168,
    "`log.roll.ms` in hours.", UpdateMode.READ_ONLY)
LOG_ROLL_JITTER_MS = _defaults.row("log.roll.jitter.ms", long(at_least=0), None,
    "Default of the topics' `segment.jitter.ms`. Not set: `log.roll.jitter.hours`.")
LOG_ROLL_JITTER_HOURS = _defaults.row("log.roll.jitter.hours", integer(at_least=0), 0,
    "`log.roll.jitter.ms` in hours.", UpdateMode.READ_ONLY)
LOG_FLUSH_INTERVAL_MS = _defaults.row("log.flush.interval.ms", long(at_least=0), None,
    "Default of the topics' `flush.ms`. Not set: `log.flush.scheduler.interval.ms`.")
LOG_FLUSH_SCHEDULER_INTERVAL_MS = _defaults.row("log.flush.scheduler.interval.ms", long(at_least=1), MAX_INT64,
    "Default of the topics' `flush.ms` if `log.flush.interval.ms` is not set. Logs are checked once a second for "
    "records that have been unsynced for that long.", UpdateMode.READ_ONLY)

_retention = TopicSection(Section("Topics: retention and compaction", TOPIC_SETTINGS, UpdateMode.PER_TOPIC))

TOPIC_CLEANUP_POLICY = _retention.row("cleanup.policy", list_of(*POLICIES), "delete",
    "`delete` removes old segments by age and size. `compact` keeps the last record of every key. Both may be "
    "combined.",
    "log.cleanup.policy")
TOPIC_RETENTION_MS = _retention.row("retention.ms", long(at_least=-1), 168 * HOUR_MS,
    "Maximum age in milliseconds of a segment's newest record. Older segments are deleted. -1: no limit.",
    LOG_RETENTION_MS, BrokerDefault(LOG_RETENTION_MINUTES, MINUTE_MS), BrokerDefault(LOG_RETENTION_HOURS, HOUR_MS))
TOPIC_RETENTION_BYTES = _retention.row("retention.bytes", long(), -1,
    "Maximum size of a partition in bytes. Oldest segments are deleted while the rest is at least this large. -1: no "
    "limit.", "log.retention.bytes")
_retention.row("delete.retention.ms", long(at_least=0), 86400000,
    "Time in milliseconds that a compacted topic keeps the tombstone of a deleted key for readers to see it.",
    "log.cleaner.delete.retention.ms")
TOPIC_MIN_COMPACTION_LAG_MS = _retention.row("min.compaction.lag.ms", long(at_least=0), 0,
    "Minimum age in milliseconds of a record that compaction may remove.", "log.cleaner.min.compaction.lag.ms")
TOPIC_MAX_COMPACTION_LAG_MS = _retention.row("max.compaction.lag.ms", long(at_least=1), MAX_INT64,
    "Maximum time in milliseconds that a replaced record stays before compaction removes it.",
    "log.cleaner.max.compaction.lag.ms")
_retention.row("min.cleanable.dirty.ratio", double(0, 1), 0.5,
    "Share of a log that must be uncompacted before it is compacted. A lower share keeps the log smaller and costs "
    "more I/O.",
    "log.cleaner.min.cleanable.ratio")
_retention.row("file.delete.delay.ms", long(at_least=0), 60000,
    "Time in milliseconds that the files of a deleted segment stay on disk, renamed.", "log.segment.delete.delay.ms")

_segments = TopicSection(Section("Topics: segments and flushing", TOPIC_SETTINGS, UpdateMode.PER_TOPIC))

_segments.row("segment.bytes", integer(at_least=MIN_SEGMENT_BYTES), 1073741824,
    "Maximum size of a segment in bytes. Retention and compaction work on whole segments.", "log.segment.bytes")
TOPIC_SEGMENT_MS = _segments.row("segment.ms", long(at_least=1), 168 * HOUR_MS,
    "Maximum age of a segment in milliseconds, after which the log rolls even if the segment is not full.",
    LOG_ROLL_MS, BrokerDefault(LOG_ROLL_HOURS, HOUR_MS))
_segments.row("segment.jitter.ms", long(at_least=0), 0,
    "Maximum random reduction of `segment.ms` in milliseconds, so that not all partitions roll at once.",
    LOG_ROLL_JITTER_MS, BrokerDefault(LOG_ROLL_JITTER_HOURS, HOUR_MS))
_segments.row("segment.index.bytes", integer(at_least=4), 10485760,
    "Maximum size of a segment's index in bytes. A full index rolls the log.", "log.index.size.max.bytes")
_segments.row("index.interval.bytes", integer(at_least=0), 4096,
    "Bytes of records between two entries of an index.", "log.index.interval.bytes")
_segments.row("preallocate", boolean(), False,
    "Whether to preallocate the file of a new segment.", "log.preallocate",
    no_effect="files grow with their content")
TOPIC_FLUSH_MESSAGES = _segments.row("flush.messages", long(at_least=1), MAX_INT64,
    "Number of records after which the log is synced to disk. 1: every produce request is acknowledged after an fsync, "
    "which all waiting requests share. Otherwise durability comes from replication, as in Kafka.",
    "log.flush.interval.messages")
_segments.row("flush.ms", long(at_least=0), MAX_INT64,
    "Maximum time in milliseconds that records stay unsynced.", LOG_FLUSH_INTERVAL_MS, LOG_FLUSH_SCHEDULER_INTERVAL_MS)

_records = TopicSection(Section("Topics: records", TOPIC_SETTINGS, UpdateMode.PER_TOPIC))

TOPIC_MAX_MESSAGE_BYTES = _records.row("max.message.bytes", integer(at_least=0), 1048588,
    "Maximum size of a record batch in bytes, as the producer sends it (after compression).", "message.max.bytes")
_records.row("compression.type", one_of(*COMPRESSION_TYPES), "producer",
    "Compression of stored batches. `producer` keeps the producer's, at no cost. With any other value the broker "
    "recompresses batches that differ.", "compression.type")
_records.row("compression.gzip.level", integer(1, 9, also=-1), -1,
    "Level of gzip when batches are recompressed. -1: gzip's default.", "compression.gzip.level")
_records.row("compression.lz4.level", integer(1, 17), 9,
    "Level of lz4 when batches are recompressed.", "compression.lz4.level")
_records.row("compression.zstd.level", integer(-131072, 22), 3,
    "Level of zstd when batches are recompressed.", "compression.zstd.level")
_records.row("message.timestamp.type", one_of("CreateTime", "LogAppendTime"), "CreateTime",
    "`CreateTime` keeps the producer's timestamps. `LogAppendTime` replaces them with the broker's clock.",
    "log.message.timestamp.type")
_records.row("message.timestamp.before.max.ms", long(at_least=0), MAX_INT64,
    "Maximum time in milliseconds that a record's timestamp may lie before the broker's clock, with `CreateTime`. A "
    "batch with an older record is rejected, and the error names its records.", "log.message.timestamp.before.max.ms")
_records.row("message.timestamp.after.max.ms", long(at_least=0), 3600000,
    "Maximum time in milliseconds that a record's timestamp may lie after the broker's clock, with `CreateTime`. A "
    "batch with a later record is rejected, and the error names its records.", "log.message.timestamp.after.max.ms")

_schemas = Section("Topics: validation of schemas", TOPIC_SETTINGS, UpdateMode.PER_TOPIC)

for _part in ("value", "key"):
    _doc = (
        f"Whether records are rejected (INVALID_RECORD) whose {_part} does not begin with the id of a schema that the "
        f"subject `TOPIC-{_part}` has. Needs `schema.registry.listener` on every broker. Records without a {_part} are "
        "accepted."
    )
    _schemas.row(f"confluent.{_part}.schema.validation", boolean(), False, _doc, is_ottla_only=True)
    _schemas.row(f"redpanda.{_part}.schema.id.validation", boolean(), False,
        f"Another name of `confluent.{_part}.schema.validation`.", is_ottla_only=True)

_replicas = TopicSection(Section("Topics: replicas", TOPIC_SETTINGS, UpdateMode.PER_TOPIC))
_THROTTLED = list_of(allowed="partition:broker pairs separated by commas, or *", check=is_throttled_replica)

TOPIC_MIN_INSYNC_REPLICAS = _replicas.row("min.insync.replicas", integer(at_least=1), 1,
    "Minimum number of in-sync replicas for a produce request with acks=all. With fewer it is rejected.",
    MIN_INSYNC_REPLICAS)
TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = _replicas.row("unclean.leader.election.enable", boolean(), False,
    "Whether a replica out of sync may become leader if no other is alive, losing the records that only the others "
    "had.",
    UNCLEAN_LEADER_ELECTION_ENABLE)
TOPIC_LEADER_REPLICATION_THROTTLED_REPLICAS = _replicas.row("leader.replication.throttled.replicas", _THROTTLED, "",
    "Replicas to which leaders send no faster than `leader.replication.throttled.rate`.")
TOPIC_FOLLOWER_REPLICATION_THROTTLED_REPLICAS = _replicas.row("follower.replication.throttled.replicas", _THROTTLED, "",
    "Replicas that fetch no faster than `follower.replication.throttled.rate`.")

_dead_letters = Section("Topics: dead letters", TOPIC_SETTINGS, UpdateMode.PER_TOPIC)

ERRORS_DEADLETTERQUEUE_GROUP_ENABLE = _dead_letters.row("errors.deadletterqueue.group.enable", boolean(), False,
    "Whether the topic may be the dead-letter topic of share groups (`errors.deadletterqueue.topic.name`). Clients "
    "that may write to the topics that a group reads can then cause records in this one.", since_kafka="4.4")

_tiers = TopicSection(Section("Topics: tiered storage (not implemented)", TOPIC_SETTINGS, UpdateMode.PER_TOPIC))
_NO_TIERS = "records are kept on the broker's own disks only"

_tiers.row("remote.storage.enable", fixed(boolean(), False, _NO_TIERS), False,
    "Whether segments move to remote storage.")
_tiers.row("remote.log.copy.disable", fixed(boolean(), False, _NO_TIERS), False,
    "Whether copying to remote storage is paused.")
_tiers.row("remote.log.delete.on.disable", fixed(boolean(), False, _NO_TIERS), False,
    "Whether remote segments are deleted when remote storage is disabled.")
_tiers.row("local.retention.ms", fixed(long(), -2, _NO_TIERS), -2,
    "Time in milliseconds that remote segments also stay on the broker's disks. -2: `retention.ms`.")
_tiers.row("local.retention.bytes", fixed(long(), -2, _NO_TIERS), -2,
    "Bytes of remote segments that also stay on the broker's disks. -2: `retention.bytes`.")

_maintenance = Section("Logs: maintenance", BROKER_SETTINGS)

LOG_RETENTION_CHECK_INTERVAL_MS = _maintenance.row("log.retention.check.interval.ms", long(at_least=1), 300000,
    "Interval in milliseconds at which segments past their retention are deleted.")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = _maintenance.row(
    "log.flush.offset.checkpoint.interval.ms", integer(at_least=1), 60000,
    "Interval in milliseconds at which recovery points are written to disk.")

_cleaner = Section("Log cleaner", BROKER_SETTINGS, UpdateMode.CLUSTER_WIDE)

LOG_CLEANER_ENABLE = _cleaner.row("log.cleaner.enable", boolean(), True,
    "Whether compacted topics are compacted. If not, they grow without limit, `__consumer_offsets` among them.",
    UpdateMode.READ_ONLY)
LOG_CLEANER_BACKOFF_MS = _cleaner.row("log.cleaner.backoff.ms", long(at_least=0), 15000,
    "Time in milliseconds that the cleaner sleeps when no log needs cleaning.")
LOG_CLEANER_DEDUPE_BUFFER_SIZE = _cleaner.row("log.cleaner.dedupe.buffer.size", long(at_least=1 << 20), 134217728,
    "Maximum memory in bytes that one pass of the cleaner uses to remember keys.")
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = _cleaner.row(
    "log.cleaner.io.max.bytes.per.second", double(at_least=1), MAX_DOUBLE,
    "Maximum bytes per second that the cleaner reads and writes, for each log directory.")
