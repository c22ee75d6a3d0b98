"""Topics' making, replicas, leaders, and the life of a broker in its cluster."""

from ottla_broker.config.setting import Scope, Setting, Theme
from ottla_broker.config.value_types import MAX_INT64, boolean, integer, long, string

_SEVERAL_BROKERS = "it counts among several brokers, which come with replication"

_topics = Theme("Making topics")

NUM_PARTITIONS = _topics.broker(
    "num.partitions", integer(at_least=1), 1, "Partitions of a topic whose creator does not say how many."
)
DEFAULT_REPLICATION_FACTOR = _topics.broker(
    "default.replication.factor", integer(at_least=1), 1, "Replicas of a topic whose creator does not say how many."
)
AUTO_CREATE_TOPICS_ENABLE = _topics.broker(
    "auto.create.topics.enable",
    boolean(),
    True,
    "Whether a topic is made when a client that allows it asks for one that is not there.",
    importance="high",
)
DELETE_TOPIC_ENABLE = _topics.broker(
    "delete.topic.enable", boolean(), True, "Whether topics can be deleted.", importance="high"
)

_replication = Theme("Replication")

MIN_INSYNC_REPLICAS = _replication.broker(
    "min.insync.replicas",
    integer(at_least=1),
    1,
    "How many replicas must be in sync for a produce with acks=all to be accepted; the default for topics that do not say.",
    importance="high",
    scope=Scope.CLUSTER_ONLY,
)
UNCLEAN_LEADER_ELECTION_ENABLE = _replication.broker(
    "unclean.leader.election.enable",
    boolean(),
    False,
    "Whether a replica that is not in sync may become leader when no other lives, losing what only the others had; the default for "
    "topics that do not say.",
    importance="high",
    scope=Scope.CLUSTER,
)
REPLICA_LAG_TIME_MAX_MS = _replication.broker(
    "replica.lag.time.max.ms",
    long(at_least=1),
    30000,
    "A follower that has not caught up with its leader for so many milliseconds leaves the in-sync replicas.",
    importance="high",
)
REPLICA_FETCH_MIN_BYTES = _replication.broker(
    "replica.fetch.min.bytes",
    integer(at_least=0),
    1,
    "A follower's fetch is answered when so many bytes are there, or after `replica.fetch.wait.max.ms`.",
    importance="high",
)
REPLICA_FETCH_WAIT_MAX_MS = _replication.broker(
    "replica.fetch.wait.max.ms",
    integer(at_least=0),
    500,
    "The longest a follower's fetch waits for data, in milliseconds; less than `replica.lag.time.max.ms`.",
    importance="high",
)
REPLICA_FETCH_MAX_BYTES = _replication.broker(
    "replica.fetch.max.bytes",
    integer(at_least=0),
    1048576,
    "Bytes of one partition that a follower asks for at a time. A first batch that is larger is returned all the same.",
)
REPLICA_FETCH_RESPONSE_MAX_BYTES = _replication.broker(
    "replica.fetch.response.max.bytes",
    integer(at_least=0),
    10485760,
    "Bytes of all partitions that a follower asks for at a time.",
)
REPLICA_FETCH_BACKOFF_MS = _replication.broker(
    "replica.fetch.backoff.ms",
    integer(at_least=0),
    1000,
    "How long a follower waits after a fetch that failed, in milliseconds.",
)
REPLICA_SOCKET_TIMEOUT_MS = _replication.broker(
    "replica.socket.timeout.ms",
    integer(at_least=1),
    30000,
    "How long a follower waits for its leader's answer, in milliseconds; at least `replica.fetch.wait.max.ms`.",
    importance="high",
)
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = _replication.broker(
    "replica.socket.receive.buffer.bytes",
    integer(at_least=-1),
    65536,
    "Size of the receive buffer of followers' sockets in bytes; -1 leaves it to the operating system.",
    importance="high",
    not_yet=_SEVERAL_BROKERS,
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = _replication.broker(
    "replica.high.watermark.checkpoint.interval.ms",
    long(at_least=1),
    5000,
    "How often high watermarks are written to disk, in milliseconds.",
    importance="high",
)
REPLICA_SELECTOR_CLASS: Setting[str | None] = _replication.broker(
    "replica.selector.class",
    string("a class name of Kafka's whose last part is RackAwareReplicaSelector or LeaderSelector", empty=False),
    None,
    "With Kafka's RackAwareReplicaSelector, a consumer that names its rack is sent to a replica in it. Not given: to the leader.",
)
LEADER_REPLICATION_THROTTLED_RATE = _replication.broker(
    "leader.replication.throttled.rate",
    long(at_least=0),
    MAX_INT64,
    "Bytes a second that the broker sends to throttled replicas of partitions that it leads.",
    scope=Scope.BROKER,
)
FOLLOWER_REPLICATION_THROTTLED_RATE = _replication.broker(
    "follower.replication.throttled.rate",
    long(at_least=0),
    MAX_INT64,
    "Bytes a second that the broker takes for throttled replicas of partitions that it follows.",
    scope=Scope.BROKER,
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = _replication.broker(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    long(at_least=0),
    MAX_INT64,
    "Bytes a second with which the broker moves replicas between its folders.",
    scope=Scope.BROKER,
    not_yet=_SEVERAL_BROKERS,
)

_cluster = Theme("Life in the cluster")

BROKER_HEARTBEAT_INTERVAL_MS = _cluster.broker(
    "broker.heartbeat.interval.ms",
    integer(at_least=1),
    500,
    "How often a broker tells the controller that it lives, in milliseconds.",
    differs="a broker that falls silent is to be missed sooner",
)
BROKER_SESSION_TIMEOUT_MS = _cluster.broker(
    "broker.session.timeout.ms",
    integer(at_least=1),
    2500,
    "A broker that the controller has not heard of for so many milliseconds is fenced: others take over what it led.",
    differs="there is no garbage collector whose pauses a session must outlive",
)
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = _cluster.broker(
    "initial.broker.registration.timeout.ms",
    integer(at_least=1),
    60000,
    "A broker that cannot register with a controller in so many milliseconds after its start gives up.",
)
CONTROLLED_SHUTDOWN_ENABLE = _cluster.broker(
    "controlled.shutdown.enable",
    boolean(),
    True,
    "Whether a broker that is told to stop first hands over what it leads.",
)
AUTO_LEADER_REBALANCE_ENABLE = _cluster.broker(
    "auto.leader.rebalance.enable",
    boolean(),
    True,
    "Whether leadership returns to the first replica of a partition by itself.",
    importance="high",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = _cluster.broker(
    "leader.imbalance.check.interval.seconds",
    long(at_least=1),
    300,
    "How often leadership is looked at for that, in seconds.",
    importance="high",
)
METADATA_LOG_SEGMENT_BYTES = _cluster.broker(
    "metadata.log.segment.bytes",
    integer(at_least=8388608),
    1073741824,
    "Segment size of the metadata log in bytes.",
    importance="high",
)
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = _cluster.broker(
    "metadata.log.max.record.bytes.between.snapshots",
    long(at_least=1),
    20971520,
    "A snapshot of the metadata is made when so many bytes of records have come since the last, or as many as that one has, but 1 MiB at least.",
    importance="high",
)
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = _cluster.broker(
    "metadata.log.max.snapshot.interval.ms",
    long(at_least=0),
    3600000,
    "A snapshot of the metadata is made when the last is so many milliseconds old and something has changed. 0: age does not count.",
    importance="high",
)
