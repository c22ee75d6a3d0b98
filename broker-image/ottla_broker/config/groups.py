"""Consumer groups, committed offsets, and what is remembered of producers."""

from ottla_broker.config.setting import Scope, Setting, Theme
from ottla_broker.config.value_types import MAX_INT32, integer, list_of, long, short

_groups = Theme("Consumer groups")

GROUP_MIN_SESSION_TIMEOUT_MS = _groups.broker(
    "group.min.session.timeout.ms",
    integer(at_least=0),
    6000,
    "The shortest session timeout that a member of a classic group may ask for, in milliseconds.",
)
GROUP_MAX_SESSION_TIMEOUT_MS = _groups.broker(
    "group.max.session.timeout.ms",
    integer(at_least=0),
    1800000,
    "The longest session timeout that a member of a classic group may ask for, in milliseconds.",
)
GROUP_INITIAL_REBALANCE_DELAY_MS = _groups.broker(
    "group.initial.rebalance.delay.ms",
    integer(at_least=0),
    3000,
    "How long an empty group's first rebalance waits for more members, in milliseconds; each that comes prolongs it, up to the "
    "rebalance timeout. 0 suits development.",
)
GROUP_MAX_SIZE = _groups.broker(
    "group.max.size", integer(at_least=1), MAX_INT32, "The most members of a classic group."
)
GROUP_COORDINATOR_REBALANCE_PROTOCOLS: Setting[tuple[str, ...]] = _groups.broker(
    "group.coordinator.rebalance.protocols",
    list_of("classic", "consumer", "share", "streams"),
    ("classic",),
    "The group protocols that are spoken.",
    differs="only the classic protocol is spoken so far",
    not_yet="only the classic protocol is spoken so far",
)

_offsets = Theme("Committed offsets")

OFFSET_METADATA_MAX_BYTES = _offsets.broker(
    "offset.metadata.max.bytes",
    integer(at_least=0),
    4096,
    "The longest text that a client may store beside a committed offset, in bytes.",
    importance="high",
)
OFFSETS_COMMIT_TIMEOUT_MS = _offsets.broker(
    "offsets.commit.timeout.ms",
    integer(at_least=1),
    5000,
    "How long a commit waits for its replicas before it fails, in milliseconds.",
    importance="high",
)
OFFSETS_RETENTION_MINUTES = _offsets.broker(
    "offsets.retention.minutes",
    integer(at_least=1),
    10080,
    "Committed offsets are forgotten when so many minutes have passed since the group became empty (or, for a group without members "
    "of its own, since the commit).",
    importance="high",
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = _offsets.broker(
    "offsets.retention.check.interval.ms",
    long(at_least=1),
    600000,
    "How often offsets that have expired are looked for, in milliseconds.",
    importance="high",
)
OFFSETS_TOPIC_NUM_PARTITIONS = _offsets.broker(
    "offsets.topic.num.partitions",
    integer(at_least=1),
    50,
    "Partitions of `__consumer_offsets`; never to be changed once the topic is there.",
    importance="high",
)
OFFSETS_TOPIC_REPLICATION_FACTOR = _offsets.broker(
    "offsets.topic.replication.factor",
    short(at_least=1),
    3,
    "Replicas of each partition of `__consumer_offsets`; as many as there are brokers where there are fewer.",
    importance="high",
)
OFFSETS_TOPIC_SEGMENT_BYTES = _offsets.broker(
    "offsets.topic.segment.bytes",
    integer(at_least=1),
    104857600,
    "Segment size of `__consumer_offsets` in bytes; small, so that compaction keeps loading quick.",
    importance="high",
)

_producers = Theme("Producers")

PRODUCER_ID_EXPIRATION_MS = _producers.broker(
    "producer.id.expiration.ms",
    integer(at_least=1),
    86400000,
    "What a partition remembers of an idempotent producer is forgotten after so many milliseconds without a batch from it.",
    importance="low",
    scope=Scope.CLUSTER,
)
